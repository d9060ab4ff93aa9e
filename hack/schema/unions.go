package main

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// unions are groups of fields of which an object has at most one. The API server refuses objects with several, but the
// OpenAPI says so only in prose, if at all: only a few types have x-kubernetes-unions. If two sides set different fields,
// a merge by field would keep both, and produce an object that neither side wrote and that the API server refuses.
//
// A type is named as in the table, with * for any version; every field must exist. A field `*` stands for all fields
// except those that start with `-`, and `*Suffix` for all fields whose type ends with Suffix, so that new fields of a
// new Kubernetes version are included.
var unions = []struct {
	types  string
	groups []string
}{
	// Handlers of probes and hooks.
	{"core.v1.Probe", []string{"exec grpc httpGet tcpSocket"}},
	{"core.v1.LifecycleHandler", []string{"*"}},

	// Sources of volumes and projections. If several fields together are one alternative, each of them excludes the
	// other alternative.
	{"core.v1.Volume", []string{"* -name"}},
	{"core.v1.PersistentVolumeSpec", []string{"*VolumeSource"}},
	{"core.v1.VolumeProjection", []string{"*"}},
	{"core.v1.DownwardAPIVolumeFile", []string{"fieldRef resourceFieldRef"}},
	{"core.v1.ClusterTrustBundleProjection", []string{"name signerName", "name labelSelector"}},
	{"core.v1.FlockerVolumeSource", []string{"*"}},
	{"core.v1.FCVolumeSource", []string{"targetWWNs wwids", "lun wwids"}},
	{"core.v1.VolumeMount", []string{"subPath subPathExpr"}},
	{"storage.v1.VolumeAttachmentSource", []string{"*"}},

	// Sources of environment variables.
	{"core.v1.EnvVar", []string{"value valueFrom"}},
	{"core.v1.EnvVarSource", []string{"*"}},
	{"core.v1.EnvFromSource", []string{"* -prefix"}},

	// States, and references with several forms.
	{"core.v1.ContainerState", []string{"*"}},
	{"core.v1.VolumeStatus", []string{"*"}},
	{"core.v1.PodResourceClaim", []string{"* -name"}},
	{"core.v1.PodSpec", []string{
		"hostPID shareProcessNamespace", "hostNetwork hostnameOverride", "hostnameOverride setHostnameAsFQDN",
	}},
	{"core.v1.NodeConfigSource", []string{"*"}},
	{"scheduling.*.PodGroupResourceClaim", []string{"* -name"}},

	// Destinations and sources of traffic.
	{"networking.v1.IngressBackend", []string{"*"}},
	{"networking.v1.ServiceBackendPort", []string{"*"}},
	{"networking.v1.NetworkPolicyPeer", []string{"ipBlock namespaceSelector", "ipBlock podSelector"}},
	{"admissionregistration.v1.WebhookClientConfig", []string{"service url"}},
	{"apiextensions.v1.WebhookClientConfig", []string{"service url"}},
	{"apiregistration.v1.APIServiceSpec", []string{"caBundle insecureSkipTLSVerify"}},

	// Policies.
	{"admissionregistration.*.ParamRef", []string{"name selector"}},
	{"admissionregistration.*.Mutation", []string{"* -patchType"}},
	{"authorization.v1.*SubjectAccessReviewSpec", []string{"nonResourceAttributes resourceAttributes"}},
	{"authorization.v1.*SelectorAttributes", []string{"*"}},
	{"batch.v1.PodFailurePolicyRule", []string{"onExitCodes onPodConditions"}},
	{"policy.v1.PodDisruptionBudgetSpec", []string{"maxUnavailable minAvailable"}},
	{"rbac.v1.PolicyRule", []string{"nonResourceURLs resources", "apiGroups nonResourceURLs"}},

	// Certificate signing requests.
	{"certificates.*.PodCertificateRequestSpec", []string{
		"pkixPublicKey stubPKCS10Request", "proofOfPossession stubPKCS10Request",
	}},

	// Metrics. Each target has a type; each type has a field of its own.
	{"autoscaling.v2.MetricSpec", []string{"* -type"}},
	{"autoscaling.v2.MetricStatus", []string{"* -type"}},
	{"autoscaling.v2.MetricTarget", []string{"* -type"}},

	// Devices.
	{"resource.v1.Device", []string{"allNodes nodeName nodeSelector"}},
	{"resource.v1beta2.Device", []string{"allNodes nodeName nodeSelector"}},
	{"resource.v1beta1.BasicDevice", []string{"allNodes nodeName nodeSelector"}},
	{"resource.*.DeviceAttribute", []string{"*"}},
	{"resource.*.DeviceConstraint", []string{"* -requests"}},
	{"resource.*.DeviceSelector", []string{"*"}},
	{"resource.*.CapacityRequestPolicy", []string{"* -default"}},
	{"resource.v1.DeviceRequest", []string{"* -name"}},
	{"resource.v1beta2.DeviceRequest", []string{"* -name"}},
	{"resource.v1beta1.DeviceRequest", []string{
		"adminAccess firstAvailable", "allocationMode firstAvailable", "capacity firstAvailable", "count firstAvailable",
		"deviceClassName firstAvailable", "firstAvailable selectors", "firstAvailable tolerations",
	}},
	{"resource.*.ResourceSliceSpec", []string{
		"allNodes nodeName nodeSelector perDeviceNodeSelection", "devices sharedCounters",
	}},

	// A schema is that of a struct or of a map; the API server refuses a schema of both.
	{"apiextensions.v1.JSONSchemaProps", []string{"additionalProperties properties"}},
}

// disjoint are groups of fields with maps or map lists that must not share a key: the API server refuses such objects. If two
// sides add the same key to different fields, a merge by field would keep both.
var disjoint = []struct {
	types  string
	fields []string
}{
	{"core.v1.ConfigMap", []string{"binaryData", "data"}},
	{"core.v1.Container", []string{"volumeDevices", "volumeMounts"}},
	{"core.v1.EphemeralContainer", []string{"volumeDevices", "volumeMounts"}},
	{"core.v1.PodSpec", []string{"containers", "ephemeralContainers", "initContainers"}},
}

func addDisjoint(types map[string]*typ) error {
	for _, of := range disjoint {
		t := types[of.types]
		if t == nil {
			return fmt.Errorf("no type is named %s anymore", of.types)
		}
		for _, field := range of.fields {
			if p := t.Fields[field]; p == nil || p.Values == nil && (p.List != "map" || len(p.Keys) != 1) {
				return fmt.Errorf("%s.%s is neither a map nor a list with one key", of.types, field)
			}
		}
		t.Disjoint = append(t.Disjoint, of.fields)
	}
	return nil
}

// discriminated are types with a field that says which of the other fields apply. Their objects are merged as a whole: a merge
// by field could combine the discriminator of one side with fields of the other.
var discriminated = []string{
	"apps.v1.DaemonSetUpdateStrategy",
	"apps.v1.DeploymentStrategy",
	"apps.v1.StatefulSetUpdateStrategy",
	"apiextensions.v1.CustomResourceConversion",
	"autoscaling.v2.MetricSpec",
	"autoscaling.v2.MetricStatus",
	"autoscaling.v2.MetricTarget",
	"admissionregistration.*.Mutation",
}

// withoutUnion are types whose description reads as if they had a union, with the reason why the table has none for them.
var withoutUnion = map[string]string{
	"admissionregistration.v1.MutatingWebhook":               "says how often it is called",
	"admissionregistration.v1.ValidatingAdmissionPolicySpec": "says that two fields may not both be empty",
	"apiextensions.v1.CustomResourceDefinitionVersion":       "exactly one version is stored: about several items",
	"apps.v1.DaemonSetSpec":                                  "says how many pods a node gets",
	"autoscaling.v2.*MetricSource":                           "describes its target, whose type is discriminated",
	"certificates.v1.CertificateSigningRequestCondition":     "Approved excludes Denied: about several items",
	"certificates.v1beta1.PodCertificateRequestStatus":       "at most one of some conditions: about several items",
	"core.v1.ISCSI*VolumeSource":                             "describes what is created if both are set",
	"core.v1.PodStatus":                                      "at most one status for a container: about several items",
	"core.v1.ServicePort":                                    "says when a name is optional",
	"meta.v1.DeleteOptions":                                  "is not stored",
	"meta.v1.ListMeta":                                       "is not stored",
	"meta.v1.ManagedFieldsEntry":                             "has only one possible value",
	"resource.*.DeviceClassSpec":                             "describes which driver a configuration is for",
	"resource.*.ResourceClaimConsumerReference":              "describes a uid",
	"resource.*.ResourceClaimStatus":                         "says how many pods can be scheduled",
	"resource.v1beta1.Device":                                "has one field besides its name",
	"scheduling.v1.PriorityClass":                            "at most one is the default: about several objects",
	"storage.v1.CSIDriverSpec":                               "at most one audience is empty: about several items",
}

var readsLikeUnion = regexp.MustCompile(`(?i)mutual(ly)?[ -]exclusive|(exactly|only|at most|must not set more than|may have only) one\b` +
	`|one and only one|both may not|may not both|but not both|simultaneously|neither of the other`)

func addUnions(published map[string]*definition, types map[string]*typ) error {
	known := make(map[string]bool)
	for name, d := range published {
		for _, union := range d.Unions {
			known[name] = true
			types[name].add(slices.Sorted(maps.Keys(union.Fields)))
			if union.Discriminator != "" {
				types[name].Whole = true
			}
		}
	}
	for _, union := range unions {
		err := matching(published, union.types, func(name string, d *definition) error {
			known[name] = true
			for _, group := range union.groups {
				fields, err := expand(d, group)
				if err != nil {
					return fmt.Errorf("union of %s: %w", name, err)
				}
				types[name].add(fields)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, pattern := range discriminated {
		err := matching(published, pattern, func(name string, _ *definition) error {
			known[name] = true
			types[name].Whole = types[name].Map == ""
			return nil
		})
		if err != nil {
			return err
		}
	}
	return unexamined(published, known)
}

// add records a union, unless it has only one field or the type is merged as a whole anyway.
func (t *typ) add(group []string) {
	if t == nil || len(group) < 2 || t.Map != "" {
		return
	}
	t.Unions = append(t.Unions, group)
	slices.SortFunc(t.Unions, slices.Compare)
}

func matching(published map[string]*definition, pattern string, do func(string, *definition) error) error {
	found := false
	for name, d := range published {
		match, err := path.Match(pattern, name)
		if err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		if match {
			found = true
			if err := do(name, d); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("no type is named %s anymore", pattern)
	}
	return nil
}

func expand(d *definition, group string) ([]string, error) {
	fields := make(map[string]bool)
	for _, word := range strings.Fields(group) {
		suffix, all := strings.CutPrefix(word, "*")
		without, removes := strings.CutPrefix(word, "-")
		switch {
		case all:
			for field, of := range d.Properties {
				fields[field] = fields[field] || strings.HasSuffix(of.Ref, suffix)
			}
		case d.Properties[strings.TrimPrefix(word, "-")] == nil:
			return nil, fmt.Errorf("no field %s", word)
		case removes:
			delete(fields, without)
		default:
			fields[word] = true
		}
	}
	maps.DeleteFunc(fields, func(_ string, in bool) bool { return !in })
	return slices.Sorted(maps.Keys(fields)), nil
}

// unexamined returns an error if a type, for example of a new Kubernetes version, reads as if it had a union and is not classified.
func unexamined(published map[string]*definition, known map[string]bool) error {
	suspects := make(map[string]string)
	for name, d := range published {
		if known[name] || d.MapType == "atomic" {
			continue
		}
		texts := []string{readsLikeUnion.FindString(d.Description)}
		for _, field := range slices.Sorted(maps.Keys(d.Properties)) {
			texts = append(texts, readsLikeUnion.FindString(d.Properties[field].Description))
		}
		if text := strings.Join(strings.Fields(strings.Join(texts, " ")), " "); text != "" {
			suspects[name] = text
		}
	}
	for pattern := range withoutUnion {
		used := false
		for name := range suspects {
			if match, _ := path.Match(pattern, name); match {
				used = true
				delete(suspects, name)
			}
		}
		if !used {
			return fmt.Errorf("withoutUnion: %s does not read as if it had a union", pattern)
		}
	}
	if len(suspects) > 0 {
		var list strings.Builder
		for _, name := range slices.Sorted(maps.Keys(suspects)) {
			fmt.Fprintf(&list, "\n  %s: %s", name, suspects[name])
		}
		return fmt.Errorf("these read as if they had a union; add them to unions, discriminated or withoutUnion:%s", &list)
	}
	return nil
}
