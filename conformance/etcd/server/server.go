// Package server runs the program under test, gitcd or etcd, as a process of its own that serves one member.
package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Program is an executable and its kind, gitcd or etcd.
type Program struct {
	kind kind
	path string
}

type kind int

const (
	gitcd kind = iota
	etcd
)

// Gitcd and Etcd return the program at a path.
func Gitcd(path string) Program { return Program{gitcd, path} }
func Etcd(path string) Program  { return Program{etcd, path} }

// IsEtcd reports whether the program is etcd.
func (p Program) IsEtcd() bool { return p.kind == etcd }

func (p Program) String() string { return p.path }

// FromEnvironment returns the program that $GITCD names or, if unset, $ETCD.
func FromEnvironment() (Program, error) {
	if path := os.Getenv("GITCD"); path != "" {
		return Gitcd(path), nil
	}
	if path := os.Getenv("ETCD"); path != "" {
		return Etcd(path), nil
	}
	return Program{}, errors.New("set GITCD or ETCD to the program to test")
}

// Options configure a server; the zero value means defaults.
type Options struct {
	QuotaBytes int64
	// PEM files. With a certificate, the server speaks TLS; with an authority, it also requires client certificates.
	Cert, Key, Authority string
	// Advertise the server's real address, instead of the same one for all servers.
	Advertise bool
	// More arguments for one of the two programs.
	GitcdArguments, EtcdArguments []string
}

// Server is a member and its data, which survive Stop and Start.
type Server struct {
	program Program
	options Options
	dir     string
	address string // empty until the server has logged where it listens
	process *process
}

// New creates the data of a server in the existing folder dir.
func New(program Program, dir string, options Options) (*Server, error) {
	s := &Server{program: program, options: options, dir: dir}
	if program.kind == gitcd {
		if err := run(program.path, "init", s.repository()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start returns once the server is serving. A restarted server keeps its address.
func (s *Server) Start() error {
	if s.options.Advertise && s.address == "" {
		// The address is known only after the first start.
		if err := errors.Join(s.startProgram(), s.Stop()); err != nil {
			return err
		}
	}
	return s.startProgram()
}

func (s *Server) startProgram() error {
	if s.program.kind == gitcd {
		return s.startGitcd()
	}
	return s.startEtcd()
}

// Stop terminates the server. It fails if the server had exited before, or does not exit cleanly.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	defer func() { s.process = nil }()
	return s.process.end()
}

// Endpoint returns the server's client URL.
func (s *Server) Endpoint() string { return s.scheme() + "://" + s.address }

// Dir returns the folder with the server's data.
func (s *Server) Dir() string { return s.dir }

// Log returns the server's whole output.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) scheme() string {
	if s.options.Cert != "" {
		return "https"
	}
	return "http"
}

func (s *Server) log() string        { return filepath.Join(s.dir, "log") }
func (s *Server) repository() string { return "--repo=" + filepath.Join(s.dir, "repo.git") }

func (s *Server) quota() string {
	return fmt.Sprintf("--quota-backend-bytes=%d", s.options.QuotaBytes)
}
