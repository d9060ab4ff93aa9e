# Everything a person needs; each target sets up what it uses.
SHELL := bash
CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help up down test suites check deny bench soak assets build

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build gitcd and trishanku
	$(CARGO) build --release -p gitcd -p trishanku

up: build ## Bring up a headless Kubernetes cluster on this machine (Ctrl-C ends it); ARGS="--name b --central" for one control plane
	@assets="$$(hack/assets.sh)" && exec target/release/trishanku up --assets "$$assets" $(ARGS)

down: ## End what `make up ARGS=--detach` left running
	@test -x target/release/trishanku || $(MAKE) build
	@target/release/trishanku down $(ARGS)

test: ## Run the tests of the workspace (with the real etcd, kube-apiserver, kubectl, git); others: suites, etcd-suites, linearizability, test-cluster
	@hack/sshd.sh
	@# Now, since scenarios wait for seconds only, which a compiler beside them would take.
	@hack/sample-controller.sh >/dev/null || :
	@hack/browser.sh >/dev/null || echo 'browser: the web page is not tested in a browser' >&2
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" && CARGO="$(CARGO)" hack/test.sh $(ARGS)

# The packages and the test are named so that cargo takes what `make test` has built.
suites: ## Run the tests of Kubernetes' storage layer against gitcd (needs Go)
	$(CARGO) build --workspace --locked --bin gitcd --test serve
	GITCD=target/debug/gitcd conformance/apiserver-storage/run $(ARGS)

check: deny ## Format, lints, documentation of the crates, licences, words
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@# Contributors read these pages in the source: links to private items are useful there.
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --locked --quiet
	@# The fuzz targets are a workspace of their own, whose lock file nothing else looks at.
	$(CARGO) update --workspace --locked --quiet --manifest-path gitcd/fuzz/Cargo.toml
	@hack/words.sh

.PHONY: check-features
check-features: ## Compile each Cargo feature of the framework alone, and all libraries for the oldest and the newest Kubernetes version
	@hack/features.sh

.PHONY: docs reference
docs: ## Build the documentation as a book with search, into target/book; installs mdBook
	@hack/docs.sh $(ARGS)

.PHONY: record
record: build ## Record the terminal sessions in docs/images again, from real runs; ARGS=push for one
	@hack/record.sh $(ARGS)

# The packages and the test are named so that cargo takes what `make test` has built.
.PHONY: screenshots
screenshots: ## Take the pictures of the web page in docs/images again, from Chromium (which it installs on Debian as root)
	@hack/browser.sh >/dev/null
	TRISHANKU_WRITE_SCREENSHOTS=1 $(CARGO) test --workspace --locked --test browser -- pictures

.PHONY: bench-page
bench-page: ## Measure the web page in Chromium: the first paint with 10,000 commits, and how soon open pages show a write; fails above LIMIT=1000 milliseconds
	@hack/browser.sh >/dev/null
	TRISHANKU_PAGE_LIMIT="$(or $(LIMIT),1000)" $(CARGO) test --release -p trishanku-page --locked --test browser -- --test-threads=1 soon $(ARGS)

# The packages and the tests are named so that cargo takes what `make test` has built.
reference: ## Write the reference pages from the programs' help and metrics, and from the CRDs
	$(CARGO) build --workspace --locked --bins
	TRISHANKU_WRITE_REFERENCE=1 $(CARGO) test --workspace --locked --test reference

# The packages and the test are named so that cargo takes what `make test` has built.
.PHONY: chart
chart: ## Render and install the Helm chart with Helm, and compare it with Kustomize's output; builds Helm once, in minutes (needs Go)
	@helm="$$(hack/helm.sh)" && assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" HELM="$$helm" && \
	$(CARGO) test --workspace --locked --test manager -- chart:: $(ARGS)

.PHONY: publish-check
publish-check: ## Package and build all library crates as for a release, without uploading
	@# The libraries name no version of Kubernetes: programs do.
	K8S_OPENAPI_ENABLED_VERSION=1.36 $(CARGO) publish --workspace --dry-run $(ARGS)

deny: ## Licences, bans and sources of the dependencies; advisories
	@hack/deny.sh

# Without the Go client, so without Go: ARGS="--client rust".
bench: $(if $(filter rust,$(subst =, ,$(ARGS))),,bench-client) ## Measure gitcd and etcd side by side, with a Go and a Rust client (needs Go, or ARGS="--client rust"); writes docs/benchmarks.md
	@assets="$$(hack/assets.sh etcd)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench --write docs/benchmarks.md $(ARGS)

.PHONY: bench-client
bench-client: ## Build the Go client of the benchmarks (needs Go)
	@command -v go >/dev/null || { \
	  echo 'Go is not installed, so the Go client of the benchmarks cannot be built. Install Go, or measure with the Rust client only: make bench ARGS="--client rust"' >&2; exit 1; }
	@mkdir -p target/release && \
	GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go build -C bench/go -buildvcs=false -o "$(CURDIR)/target/release/gitcd-bench-go" .

.PHONY: bench-memory
bench-memory: ## Measure the memory of gitcd and etcd with 100,000 keys, and with 250,000 revisions that are not compacted; writes docs/benchmarks.md
	@assets="$$(hack/assets.sh etcd)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench memory --write docs/benchmarks.md $(ARGS)

.PHONY: bench-growth
bench-growth: ## Measure how cost grows with keys, watchers and branches, beside etcd; writes docs/benchmarks.md and its pictures
	@assets="$$(hack/assets.sh etcd)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench growth --write docs/benchmarks.md $(ARGS)

.PHONY: bench-kube
bench-kube: ## Measure gitcd and etcd through a kube-apiserver each; writes docs/benchmarks.md
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench kube --write docs/benchmarks.md $(ARGS)

.PHONY: bench-storage
bench-storage: ## Measure Git as a database: bytes a revision, joining packs, a large directory, starts; takes half an hour; writes docs/benchmarks.md
	@assets="$$(hack/assets.sh etcd)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench storage --write docs/benchmarks.md $(ARGS)

.PHONY: bench-branches
bench-branches: ## Measure how fast branches follow one another, and a merge into 100,000 keys; writes docs/benchmarks.md
	@$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench branches --write docs/benchmarks.md $(ARGS)

.PHONY: bench-headless
bench-headless: ## Measure a headless cluster beside a central control plane; writes docs/benchmarks.md
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd -p trishanku -p gitcd-bench && \
	target/release/gitcd-bench headless --write docs/benchmarks.md $(ARGS)

.PHONY: bench-hostile
bench-hostile: ## Measure gitcd's latency under hostile requests to its Git host; writes docs/benchmarks.md
	$(CARGO) build --release -p gitcd -p gitcd-bench && \
	target/release/gitcd-bench hostile --write docs/benchmarks.md $(ARGS)

.PHONY: bench-migrate
bench-migrate: ## Measure a move of 100,000 keys from etcd to gitcd and back, under load
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p gitcd && hack/bench-migrate.sh target/release/gitcd

.PHONY: bench-heavens
bench-heavens: ## Measure the memory of a manager with 1,000 heavens; fails if it is more than it may be
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) bench -p trishanku-manager --bench heavens --locked $(ARGS)

.PHONY: bench-framework
bench-framework: ## Measure the framework beside kube-runtime and Go's controller-runtime (needs Go); writes docs/benchmarks.md
	@assets="$$(hack/assets.sh kube-apiserver)" && export KUBEBUILDER_ASSETS="$$assets" && \
	$(CARGO) build --release -p trishanku-framework-bench && \
	GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go build -C framework/bench/go -buildvcs=false -o "$(CURDIR)/target/release/pairs-go" . && \
	target/release/trishanku-framework-bench --write docs/benchmarks.md $(ARGS)

# The packages and the tests are named so that cargo takes what `make test` has built.
soak: ## The long form of the crash test: CYCLES=1000 times kill -9 under load, about 20 minutes
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" GITCD_CRASH_CYCLES="$(or $(CYCLES),1000)" && \
	$(CARGO) test --workspace --test crash --locked -- --nocapture $(ARGS)

# The packages and the test are named so that cargo takes what `make test` has built.
.PHONY: soak-etcd
soak-etcd: ## Random requests to a real etcd and to gitcd, which must answer alike; CASES=5000 of 150 requests, about an hour; SEED=N
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" \
	GITCD_DIFFERENTIAL_CASES="$(or $(CASES),5000)" GITCD_DIFFERENTIAL_SEED="$(or $(SEED),1)" && \
	$(CARGO) test --workspace --test same_as_etcd --locked -- --nocapture random_requests $(ARGS)

# The packages and the test are named so that cargo takes what `make test` has built.
.PHONY: soak-merge
soak-merge: ## The long form of the merge tests: 20,000 pairs of branches against serial orders of their requests, 100,000 objects of all kinds; SEED=N
	@assets="$$(hack/assets.sh kube-apiserver)" && export KUBEBUILDER_ASSETS="$$assets" \
	TRISHANKU_MERGE_CASES="$(or $(CASES),20000)" TRISHANKU_MERGE_OBJECTS="$(or $(OBJECTS),100000)" TRISHANKU_MERGE_SEED="$(or $(SEED),1)" && \
	$(CARGO) test --workspace --no-fail-fast --test merge --locked -- --nocapture --test-threads=1 $(ARGS)

.PHONY: soak-power
soak-power: ## The long form of the power-loss test: CYCLES=1000 losses of power (needs root and /dev/fuse)
	@GITCD_POWER_CYCLES="$(or $(CYCLES),1000)" $(CARGO) test --workspace --test power --locked -- --nocapture --test-threads=1 $(ARGS)

.PHONY: soak-headless
soak-headless: ## The long forms of the headless scenarios: minutes without the others, ten minutes taken back, kills in a mesh, handovers between two replicas
	@assets="$$(hack/assets.sh)" && export KUBEBUILDER_ASSETS="$$assets" TRISHANKU_E2E_LONG=1 && \
	$(CARGO) test --workspace --no-fail-fast --locked --test headless --test processes -- $(ARGS)

.PHONY: images
images: ## Build container images without a registry, as archives in target/images; ARGS=--help says more
	@hack/images.sh $(ARGS)

# Its scenarios build on one another, so none is repeated alone. The programs are those that `make test` has built: with all that debuggers need they would be large, so the images have them without.
# The test demands that no pod of a heaven is replaced with the manager: the one of PREVIOUS has to plan pods as this one does.
.PHONY: test-cluster
test-cluster: ## Install it into a cluster of one real node on this machine, and see it work in pods (Linux, root); PREVIOUS=commit upgrades the manager from there, too, and has to plan the same pods
	@hack/node.sh
	@$(CARGO) build --workspace --locked --bins --test cluster
	@assets="$$(unset KUBEBUILDER_ASSETS; hack/assets.sh etcd etcdctl kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kube-proxy)" && \
	programs="$${CARGO_TARGET_DIR:-target}/debug" && images="$$(hack/images.sh --programs "$$programs" gitcd manager trishanku test)" && \
	hack/images.sh --programs "$$programs" --tag next --output "$$images/next" gitcd manager >/dev/null && \
	rm -rf "$$images/previous" && \
	$(if $(PREVIOUS),previous="$$(hack/previous.sh $(PREVIOUS))" && hack/images.sh --programs "$$previous" --tag previous --output "$$images/previous" manager >/dev/null && )\
	export KUBEBUILDER_ASSETS="$$assets" TRISHANKU_E2E_IMAGES="$$images" TRISHANKU_E2E_CLUSTER="$${TRISHANKU_E2E_CLUSTER:-host}" && \
	CARGO="$(CARGO)" TEST_RETRIES=0 TEST_BINARY_TIMEOUT=0 hack/test.sh --test cluster -- $(ARGS)

.PHONY: soak-cluster
soak-cluster: ## Faults in a real cluster for an hour (Linux, root); MINUTES=10 for less, TRISHANKU_E2E_SEED=… to repeat one
	@TRISHANKU_E2E_SOAK="$(or $(MINUTES),60)" $(MAKE) test-cluster ARGS="--skip=images:: --skip=security:: --skip=beside:: --skip=survives:: --skip=trouble:: --skip=a_first --skip=uninstalling"

.PHONY: fuzz
fuzz: ## Fuzz gitcd's formats and requests with libFuzzer (needs a C++ compiler); SECONDS_EACH=600, TARGETS=path
	@SECONDS_EACH="$(or $(SECONDS_EACH),60)" hack/fuzz.sh $(TARGETS)

# The packages and the test are named so that cargo takes what `make test` has built.
.PHONY: linearizability
linearizability: ## Random clients, watchers and failures against a model of etcd; DURATION=1h for long (needs Go)
	@$(if $(GITCD),,$(CARGO) build --workspace --locked --bin gitcd --test serve)
	GITCD="$(or $(GITCD),target/debug/gitcd)" conformance/linearizability/run $(ARGS)

.PHONY: etcd-suites
etcd-suites: ## etcd's own client-level tests, and etcdctl on etcd and gitcd side by side (needs Go)
	@$(if $(GITCD),,$(CARGO) build --workspace --locked --bin gitcd --test serve)
	GITCD="$(or $(GITCD),target/debug/gitcd)" conformance/etcd/run $(ARGS)

.PHONY: e2e-kubernetes
e2e-kubernetes: build ## The API machinery's conformance specs of Kubernetes' own e2e suite, on the desk of a headless cluster; about an hour (needs Go); FOCUS=Namespaces for some, ARGS=--central for one control plane
	TRISHANKU=target/release/trishanku FOCUS="$(FOCUS)" conformance/kubernetes/run $(ARGS)

.PHONY: schema
schema: ## Make the table of how Kubernetes' kinds are merged from their OpenAPI (needs Go); ARGS=--check only compares
	@hack/schema.sh $(ARGS)

.PHONY: alerts
alerts: ## Test the alert rules and dashboards, with promtool and with servers that are broken; installs Prometheus on Debian as root
	@$(CARGO) build --workspace --locked --bins
	@hack/alerts.sh $(ARGS)

.PHONY: dist
dist: ## Make the files of a release: archive, Debian packages, SBOM, sums; ARGS="--sign KEY"; ARGS=--help says more
	@hack/dist.sh $(ARGS)

.PHONY: test-dist
test-dist: ## Make the files of a release from the programs that `make test` has built, and install them on a machine without a toolchain (Linux, root); PROGRAMS= builds them as for a release
	@$(if $(filter undefined,$(origin PROGRAMS)),$(CARGO) build --workspace --locked --bins && )\
	hack/dist-test.sh "$(if $(filter undefined,$(origin PROGRAMS)),$${CARGO_TARGET_DIR:-target}/debug,$(PROGRAMS))" $(ARGS)

.PHONY: workflows
workflows: ## Check the workflows of GitHub Actions (needs Go)
	@# The arguments of make are split into words, which shellcheck would report.
	GOFLAGS=-mod=readonly GOWORK=off go -C hack/workflows tool actionlint -shellcheck= -pyflakes= "$(CURDIR)"/.github/workflows/*.yml

assets: ## Get the Kubernetes and etcd binaries; prints their folder
	@hack/assets.sh
