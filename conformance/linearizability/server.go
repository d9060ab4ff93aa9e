package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Program is the server under test: gitcd, or etcd to test the checks themselves.
type Program struct {
	Kind string
	Path string
}

// startPatience is the timeout of a start, including recovery, on a busy machine.
const startPatience = 60 * time.Second

// A Process is a server with its data in a folder, which can be killed and restarted.
type Process struct {
	program Program
	folder  string
	port    int
	peer    int
	command *exec.Cmd
	exited  chan struct{}
}

// NewProcess creates the data of a new server in folder.
func NewProcess(program Program, folder string, rng *rand.Rand) (*Process, error) {
	p := &Process{program: program, folder: folder, port: freePort(rng), peer: freePort(rng)}
	if program.Kind == "etcd" {
		return p, nil
	}
	init := exec.Command(program.Path, "init", "--repo="+p.repository(), "--key-prefixes=/registry",
		"--ephemeral-prefixes=/registry/events")
	init.Env = environment()
	if output, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gitcd init: %w: %s", err, output)
	}
	return p, nil
}

func (p *Process) repository() string { return filepath.Join(p.folder, "repo.git") }

// URL returns the client URL.
func (p *Process) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.port) }

// environment returns our environment without variables that configure gitcd or etcd.
func environment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "GITCD_") && !strings.HasPrefix(variable, "ETCD_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// maxRequestBytes is small, so that watch responses get large enough to be fragmented.
const maxRequestBytes = 128 << 10

func (p *Process) arguments() []string {
	limit := fmt.Sprintf("--max-request-bytes=%d", maxRequestBytes)
	if p.program.Kind == "etcd" {
		peer := fmt.Sprintf("http://127.0.0.1:%d", p.peer)
		return []string{
			"--name=test", "--log-level=warn", "--data-dir=" + filepath.Join(p.folder, "etcd"),
			"--listen-client-urls=" + p.URL(), "--advertise-client-urls=" + p.URL(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
			// The page cache survives SIGKILL.
			"--unsafe-no-fsync", "--watch-progress-notify-interval=1s", limit,
		}
	}
	return []string{
		"serve", "--repo=" + p.repository(), "--key-prefixes=/registry", "--ephemeral-prefixes=/registry/events",
		"--listen-urls=" + p.URL(), "--watch-progress-notify-interval=1", limit,
	}
}

// Start starts the process, without waiting until it serves.
func (p *Process) Start() error {
	log, err := os.OpenFile(filepath.Join(p.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.command = exec.Command(p.program.Path, p.arguments()...)
	p.command.Env, p.command.Stdout, p.command.Stderr = environment(), log, log
	if err := p.command.Start(); err != nil {
		return err
	}
	p.exited = make(chan struct{})
	go func(command *exec.Cmd, exited chan struct{}) {
		_ = command.Wait() // the log has the reason
		close(exited)
	}(p.command, p.exited)
	return nil
}

// Kill sends SIGKILL and waits for the exit.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // an error means that it has already exited
	<-p.exited
}

// Terminate sends SIGTERM, and fails if the process does not exit.
func (p *Process) Terminate() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(startPatience):
		p.Kill()
		return fmt.Errorf("it did not exit within %v of SIGTERM", startPatience)
	}
}

// Serving waits until the server reports that it is healthy.
func (p *Process) Serving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/health", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return errors.New("the server exited at its start:\n" + p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("the server is not healthy: %w:\n%s", ctx.Err(), p.lastWords())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (p *Process) lastWords() string {
	raw, _ := os.ReadFile(filepath.Join(p.folder, "log"))
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// freePort returns a port below those that the kernel gives to outgoing connections: such a connection could otherwise
// take the port while its server is down.
func freePort(rng *rand.Rand) int {
	for {
		port := 12_000 + rng.IntN(20_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
}
