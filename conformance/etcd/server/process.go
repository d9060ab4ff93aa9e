package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// patience is generous, for busy machines: a server starts in a fraction of a second.
const patience = 60 * time.Second

type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed once err is set
	err     error
	// Whether exiting by SIGTERM counts as success.
	endsBySignal bool
}

// launch starts command, with its output in the file log.
func launch(command *exec.Cmd, log string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	endWithParent(command)

	p := &process{command: command, ended: make(chan struct{})}
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
		return nil, fmt.Errorf("starting %s: %w", command.Path, err)
	}
	return p, nil
}

// await returns once condition holds.
func (p *process) await(condition func() bool) error {
	deadline := time.Now().Add(patience)
	for !condition() {
		select {
		case <-p.ended:
			return fmt.Errorf("%s exited at start-up: %v", p.command.Path, p.err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s is not serving after %v", p.command.Path, patience), p.end())
		}
	}
	return nil
}

func (p *process) end() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s exited during the test: %v", p.command.Path, p.err)
	default:
	}
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have just exited, which Wait reports
	select {
	case <-p.ended:
		if p.err == nil || p.endsBySignal && terminated(p.err) {
			return nil
		}
		return fmt.Errorf("exit of %s: %w", p.command.Path, p.err)
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not exit within %v", p.command.Path, patience)
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
