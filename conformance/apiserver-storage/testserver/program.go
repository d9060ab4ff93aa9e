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

// patience is generous, for busy machines: a server starts in a fraction of a second.
const patience = 60 * time.Second

// start runs the program that $GITCD or $ETCD names, waits until it listens, and returns its client URL.
func start(t testing.TB, cfg *embed.Config) string {
	t.Helper()
	scheme := cfg.ListenClientUrls[0].Scheme
	if program := os.Getenv("GITCD"); program != "" {
		return scheme + "://" + startGitcd(t, program, cfg)
	}
	if program := os.Getenv("ETCD"); program != "" {
		return scheme + "://" + startEtcd(t, program, cfg)
	}
	t.Fatal("set GITCD or ETCD to the program to test")
	return ""
}

var serving = regexp.MustCompile(`(?m)^.* serving .*\baddress=(\S+)$`)

// startGitcd serves a new repository. The kernel chooses the port, so that no other process can take it in between.
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

// startEtcd is for comparison: a test that fails with gitcd, but not with etcd as a process, has found a bug in gitcd.
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

// progress returns the flag for the interval of progress notifications. Without one in the configuration, the server's
// long default applies.
func progress(cfg *embed.Config) []string {
	if cfg.WatchProgressNotifyInterval == 0 {
		return nil
	}
	return []string{"--watch-progress-notify-interval=" + cfg.WatchProgressNotifyInterval.String()}
}

// freeAddress returns an address with a port below those that the kernel gives to outgoing connections. etcd does not
// report a port that the kernel chose, so this one is only very likely to still be free.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(20_000)))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	t.Fatal("no free port after a hundred tries")
	return ""
}
