// Package transcripts compares the output of etcdctl from etcd and from gitcd.
package transcripts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trishanku.invalid/conformance/etcd/server"
)

// patience is the time limit of a script; its own waits time out earlier.
const patience = time.Minute

func TestTranscripts(t *testing.T) {
	prelude, err := filepath.Abs("prelude.sh")
	if err != nil {
		t.Fatal(err)
	}
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Fatal("set KUBEBUILDER_ASSETS to the folder with etcd and etcdctl")
	}
	etcd := server.Etcd(filepath.Join(assets, "etcd"))
	program, err := server.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if program.IsEtcd() {
				s.differences = nil
			}
			ours := s.play(t, program, prelude, assets)
			theirs := s.play(t, etcd, prelude, assets)
			t.Logf("etcd (-) and gitcd (+):\n%s", strings.Join(sideBySide(theirs, ours), "\n"))
			if differences := difference(theirs, ours); !slices.Equal(differences, s.differences) {
				t.Errorf("%d lines differ; these %d are expected to:\n%s",
					len(differences), len(s.differences), strings.Join(s.differences, "\n"))
			}
		})
	}
}

// play runs the script against fresh servers and returns the transcript.
func (s scenario) play(t *testing.T, program server.Program, prelude, assets string) transcript {
	t.Helper()
	folder, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	n := normaliser{replacements: []string{folder, "FOLDER"}}
	environment := append(slices.DeleteFunc(os.Environ(), isEtcdctl), "PATH="+assets+":"+os.Getenv("PATH"))
	for i := range s.servers {
		running := s.start(t, program)
		endpoint := strings.TrimPrefix(running.Endpoint(), "http://")
		name := "ENDPOINT"
		if i > 0 {
			name += fmt.Sprint(i + 1)
		}
		environment = append(environment, name+"="+endpoint)
		n.replacements = append(n.replacements, endpoint, name)
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", "source "+prelude+"\n"+s.script)
	shell.Dir, shell.Env = folder, environment
	// On timeout, the whole process group is killed.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	output, err := shell.Output()
	if err != nil {
		said := err.Error()
		if failure := (*exec.ExitError)(nil); errors.As(err, &failure) {
			said += ": " + string(failure.Stderr)
		}
		t.Fatalf("the script failed with %s: %s\n%s", program, said, output)
	}
	return n.normalise(string(output))
}

func (s scenario) start(t *testing.T, program server.Program) *server.Server {
	t.Helper()
	running, err := server.New(program, t.TempDir(), server.Options{
		QuotaBytes: s.quota, Advertise: s.advertise, GitcdArguments: s.serve, EtcdArguments: slices.Concat(s.serve, s.etcd),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := running.Start(); err != nil {
		t.Fatalf("%v; %s", err, running.LastWords())
	}
	return running
}

// isEtcdctl reports whether an environment variable configures etcdctl.
func isEtcdctl(variable string) bool { return strings.HasPrefix(variable, "ETCDCTL_") }
