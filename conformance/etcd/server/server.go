// Package server runs the program under test, gitcd or etcd, as a process of its own that serves one member.
package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Program says which server a file is.
type Program struct {
	kind kind
	path string
}

type kind int

const (
	gitcd kind = iota
	etcd
)

// Gitcd and Etcd name a program by its path.
func Gitcd(path string) Program { return Program{gitcd, path} }
func Etcd(path string) Program  { return Program{etcd, path} }

func (p Program) String() string { return p.path }

// FromEnvironment gives the program that $GITCD names or, without one, $ETCD.
func FromEnvironment() (Program, error) {
	if path := os.Getenv("GITCD"); path != "" {
		return Gitcd(path), nil
	}
	if path := os.Getenv("ETCD"); path != "" {
		return Etcd(path), nil
	}
	return Program{}, errors.New("GITCD or ETCD must name the program to test")
}

// Options are what tests ask of a server; the zero value is its defaults.
type Options struct {
	QuotaBytes int64
	// PEM files. The server speaks TLS if there is a certificate, and asks clients for theirs if there is an authority.
	Cert, Key, Authority string
	// Further arguments for one of the two programs.
	GitcdArguments, EtcdArguments []string
}

// Server is a member with its data, which survives Stop and Start.
type Server struct {
	program Program
	options Options
	dir     string
	address string // empty until the server has said where it listens
	process *process
}

// New makes the data of a server in the existing folder dir.
func New(program Program, dir string, options Options) (*Server, error) {
	s := &Server{program: program, options: options, dir: dir}
	if program.kind == gitcd {
		if err := run(program.path, "init", s.repository()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start returns when the server serves. A server that was stopped gets the address back that it had.
func (s *Server) Start() (err error) {
	if s.program.kind == gitcd {
		return s.startGitcd()
	}
	return s.startEtcd()
}

// Stop asks the server to end, and fails if it had ended before or does not end in peace.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	defer func() { s.process = nil }()
	return s.process.end()
}

// Endpoint is the server's client URL.
func (s *Server) Endpoint() string { return s.scheme() + "://" + s.address }

// Dir is the folder with the server's data.
func (s *Server) Dir() string { return s.dir }

// Log is all that the server has said.
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
