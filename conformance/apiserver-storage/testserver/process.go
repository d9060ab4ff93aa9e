package testserver

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that serves until its test ends.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{} // closed once err says how
	err     error
	// etcd cleans up and then ends by the signal that asked it to.
	endsBySignal bool
}

// launch starts command, whose output goes to the file log, and ends it with the test.
func launch(t testing.TB, command *exec.Cmd, log string) *process {
	t.Helper()
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	endWithParent(command)

	p := &process{command: command, log: log, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For Linux the parent is the thread that starts a process: it must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			p.err = command.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %s: %v", command.Path, err)
	}
	t.Cleanup(func() { p.end(t) })
	return p
}

// await returns when condition holds.
func (p *process) await(t testing.TB, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		select {
		case <-p.ended:
			t.Fatalf("%s ended at start-up: %v\n%s", p.command.Path, p.err, p.output())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve after %v:\n%s", p.command.Path, patience, p.output())
		}
	}
}

// end asks the process to end, and fails the test if it has ended before, takes long or complains.
func (p *process) end(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
		t.Errorf("the server ended during the test: %v", p.err)
	default:
		_ = p.command.Process.Signal(syscall.SIGTERM) // it may end at this moment; Wait tells
		select {
		case <-p.ended:
			if p.err != nil && !(p.endsBySignal && terminated(p.err)) {
				t.Errorf("the server's end: %v", p.err)
			}
		case <-time.After(patience):
			_ = p.command.Process.Kill()
			<-p.ended
			t.Errorf("the server did not end in %v", patience)
		}
	}
	if t.Failed() {
		lines := strings.SplitAfter(p.output(), "\n")
		t.Logf("the server's last words:\n%s", strings.Join(lines[max(0, len(lines)-30):], ""))
	}
}

func terminated(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
