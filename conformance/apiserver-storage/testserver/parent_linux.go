package testserver

import (
	"os/exec"
	"syscall"
)

// endWithParent kills the server with its test: a test that panics or times out runs no cleanup.
func endWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
