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

// A process is a server that runs until the end of its test.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{} // closed once err is set
	err     error
	// Whether exiting by SIGTERM counts as success: etcd does so after its cleanup.
	endsBySignal bool
}

// launch starts command, with its output in the file log, and stops it at the end of the test.
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
		// On Linux, Pdeathsig fires when the starting thread exits: keep that thread until the process has ended.
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

// await returns once condition holds.
func (p *process) await(t testing.TB, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		select {
		case <-p.ended:
			t.Fatalf("%s exited at start-up: %v\n%s", p.command.Path, p.err, p.output())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not serving after %v:\n%s", p.command.Path, patience, p.output())
		}
	}
}

// end terminates the process. It fails the test if the process had exited before, is slow to exit, or exits with an error.
func (p *process) end(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
		t.Errorf("the server exited during the test: %v", p.err)
	default:
		_ = p.command.Process.Signal(syscall.SIGTERM) // it may have just exited, which Wait reports
		select {
		case <-p.ended:
			if p.err != nil && !(p.endsBySignal && terminated(p.err)) {
				t.Errorf("the server failed at its exit: %v", p.err)
			}
		case <-time.After(patience):
			_ = p.command.Process.Kill()
			<-p.ended
			t.Errorf("the server did not exit within %v", patience)
		}
	}
	if t.Failed() {
		lines := strings.SplitAfter(p.output(), "\n")
		t.Logf("end of the server's log:\n%s", strings.Join(lines[max(0, len(lines)-30):], ""))
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
