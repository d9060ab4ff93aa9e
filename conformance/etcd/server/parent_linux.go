package server

import (
	"os/exec"
	"syscall"
)

// A test that panics or runs out of time does not clean up; its server must not outlive it.
func endWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
