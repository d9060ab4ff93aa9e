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

// A Program is what serves: gitcd, or etcd to prove the checks themselves.
type Program struct {
	Kind string
	Path string
}

// startPatience bounds a start, recovery included, on a busy machine.
const startPatience = 60 * time.Second

// A Process is a server with its state in a folder, which can be killed and started again.
type Process struct {
	program Program
	folder  string
	port    int
	peer    int
	command *exec.Cmd
	exited  chan struct{}
}

// NewProcess prepares the folder of a new server.
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

// URL is where clients connect.
func (p *Process) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.port) }

// environment is ours without flags for gitcd or etcd in it.
func environment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "GITCD_") && !strings.HasPrefix(variable, "ETCD_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// maxRequestBytes is small, so that watch responses reach the size from which they are fragmented.
const maxRequestBytes = 128 << 10

func (p *Process) arguments() []string {
	limit := fmt.Sprintf("--max-request-bytes=%d", maxRequestBytes)
	if p.program.Kind == "etcd" {
		peer := fmt.Sprintf("http://127.0.0.1:%d", p.peer)
		return []string{
			"--name=test", "--log-level=warn", "--data-dir=" + filepath.Join(p.folder, "etcd"),
			"--listen-client-urls=" + p.URL(), "--advertise-client-urls=" + p.URL(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
			// SIGKILL does not empty the page cache.
			"--unsafe-no-fsync", "--watch-progress-notify-interval=1s", limit,
		}
	}
	return []string{
		"serve", "--repo=" + p.repository(), "--key-prefixes=/registry", "--ephemeral-prefixes=/registry/events",
		"--listen-urls=" + p.URL(), "--watch-progress-notify-interval=1", limit,
	}
}

// Start starts the process, without waiting for it to serve.
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
		_ = command.Wait() // what it says is in the log
		close(exited)
	}(p.command, p.exited)
	return nil
}

// Kill is SIGKILL.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended by itself: whoever waits for it to serve is told
	<-p.exited
}

// Terminate is SIGTERM, and an error if the process does not end by it.
func (p *Process) Terminate() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(startPatience):
		p.Kill()
		return fmt.Errorf("it did not end within %v of SIGTERM", startPatience)
	}
}

// Serving waits until the server says that it is healthy.
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
			return errors.New("the server ended at its start:\n" + p.lastWords())
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

// freePort is below the range that the kernel gives to outgoing connections: such a connection could otherwise take
// the port while its server is down.
func freePort(rng *rand.Rand) int {
	for {
		port := 12_000 + rng.IntN(20_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
}
