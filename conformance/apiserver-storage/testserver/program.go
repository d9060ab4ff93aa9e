package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// Starting a server takes a fraction of a second; a busy machine is given time.
const patience = 60 * time.Second

// start runs the program that the environment names, $GITCD or $ETCD, waits
// until it listens, and gives its client URL.
func start(t testing.TB, cfg *embed.Config) string {
	t.Helper()
	scheme := cfg.ListenClientUrls[0].Scheme
	if program := os.Getenv("GITCD"); program != "" {
		return scheme + "://" + startGitcd(t, program, cfg)
	}
	if program := os.Getenv("ETCD"); program != "" {
		return scheme + "://" + startEtcd(t, program, cfg)
	}
	t.Fatal("GITCD or ETCD must name the program to test")
	return ""
}

var serving = regexp.MustCompile(`(?m)^.* serving .*\baddress=(\S+)$`)

// startGitcd serves a new repository on a port that the kernel chooses: no
// other process can take it in between.
func startGitcd(t testing.TB, program string, cfg *embed.Config) string {
	t.Helper()
	repository := "--repo=" + filepath.Join(cfg.Dir, "repo.git")
	if output, err := exec.Command(program, "init", repository).CombinedOutput(); err != nil {
		t.Fatalf("%s init: %v\n%s", program, err, output)
	}
	arguments := []string{
		"serve", repository,
		"--listen-urls=" + cfg.ListenClientUrls[0].String(),
		fmt.Sprintf("--max-request-bytes=%d", cfg.MaxRequestBytes),
		fmt.Sprintf("--max-txn-ops=%d", cfg.MaxTxnOps),
	}
	arguments = append(arguments, progress(cfg)...)
	if tls := cfg.ClientTLSInfo; !tls.Empty() {
		arguments = append(arguments,
			"--tls-cert="+tls.CertFile, "--tls-key="+tls.KeyFile, "--tls-trusted-ca-certs="+tls.TrustedCAFile)
	}
	server := launch(t, exec.Command(program, arguments...), filepath.Join(cfg.Dir, "log"))
	var address string
	server.await(t, func() bool {
		if said := serving.FindStringSubmatch(server.output()); said != nil {
			address = said[1]
		}
		return address != ""
	})
	return address
}

// startEtcd is for comparison: what fails with gitcd but not with etcd as a
// process is gitcd's fault.
func startEtcd(t testing.TB, program string, cfg *embed.Config) string {
	t.Helper()
	address := freeAddress(t)
	client := cfg.ListenClientUrls[0].Scheme + "://" + address
	peer := "http://" + freeAddress(t)
	arguments := []string{
		"--name=test", "--log-level=warn", "--unsafe-no-fsync", "--logger=zap",
		"--data-dir=" + filepath.Join(cfg.Dir, "data"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
		fmt.Sprintf("--max-request-bytes=%d", cfg.MaxRequestBytes),
		fmt.Sprintf("--max-txn-ops=%d", cfg.MaxTxnOps),
	}
	arguments = append(arguments, progress(cfg)...)
	if tls := cfg.ClientTLSInfo; !tls.Empty() {
		arguments = append(arguments,
			"--cert-file="+tls.CertFile, "--key-file="+tls.KeyFile, "--trusted-ca-file="+tls.TrustedCAFile)
	}
	server := launch(t, exec.Command(program, arguments...), filepath.Join(cfg.Dir, "log"))
	server.endsBySignal = true
	server.await(t, func() bool {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
	return address
}

// progress is the flag that sets how often watchers are told the revision. A configuration
// that says nothing of it leaves the server its default, which is long.
func progress(cfg *embed.Config) []string {
	if cfg.WatchProgressNotifyInterval == 0 {
		return nil
	}
	return []string{"--watch-progress-notify-interval=" + cfg.WatchProgressNotifyInterval.String()}
}

// freeAddress is below the ports that the kernel gives to outgoing connections.
// etcd cannot say which port it got, so this one is only very likely still free.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(20_000)))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	t.Fatal("no free port in a hundred tries")
	return ""
}
