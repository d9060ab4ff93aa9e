package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

var serving = regexp.MustCompile(`(?m)^.* serving .*\baddress=(\S+)$`)

// startGitcd lets the kernel choose the port: no other process can take it in between.
func (s *Server) startGitcd() error {
	address := s.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	arguments := []string{"serve", s.repository(), "--listen-urls=" + s.scheme() + "://" + address}
	if s.options.QuotaBytes != 0 {
		arguments = append(arguments, s.quota())
	}
	if s.options.Cert != "" {
		arguments = append(arguments, "--tls-cert="+s.options.Cert, "--tls-key="+s.options.Key)
	}
	if s.options.Authority != "" {
		arguments = append(arguments, "--tls-trusted-ca-certs="+s.options.Authority)
	}
	p, err := launch(exec.Command(s.program.path, append(arguments, s.options.GitcdArguments...)...), s.log())
	if err != nil {
		return err
	}
	s.process = p
	return p.await(func() bool {
		said := serving.FindStringSubmatch(s.Log())
		if said != nil {
			s.address = said[1]
		}
		return said != nil
	})
}

// startEtcd elects the only member as fast as etcd allows.
func (s *Server) startEtcd() error {
	if s.address == "" {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		s.address = address
	}
	peerAddress, err := freeAddress()
	if err != nil {
		return err
	}
	client, peer := s.scheme()+"://"+s.address, "http://"+peerAddress
	arguments := []string{
		"--name=default", "--log-level=warn", "--logger=zap", "--unsafe-no-fsync",
		"--heartbeat-interval=10", "--election-timeout=100",
		"--data-dir=" + filepath.Join(s.dir, "data"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
	}
	if s.options.QuotaBytes != 0 {
		arguments = append(arguments, s.quota())
	}
	if s.options.Cert != "" {
		arguments = append(arguments, "--cert-file="+s.options.Cert, "--key-file="+s.options.Key)
	}
	if s.options.Authority != "" {
		arguments = append(arguments, "--trusted-ca-file="+s.options.Authority, "--client-cert-auth")
	}
	p, err := launch(exec.Command(s.program.path, append(arguments, s.options.EtcdArguments...)...), s.log())
	if err != nil {
		return err
	}
	// etcd cleans up and then ends by the signal that asked it to.
	p.endsBySignal = true
	s.process = p
	// It listens when it has joined its cluster.
	return p.await(func() bool {
		connection, err := net.Dial("tcp", s.address)
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
}

// freeAddress is below the ports that the kernel gives to outgoing connections.
// etcd cannot say which port it got, so this one is only very likely still free.
func freeAddress() (string, error) {
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(20_000)))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address, nil
		}
	}
	return "", fmt.Errorf("no free port in a hundred tries")
}

func run(program string, arguments ...string) error {
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, arguments, err, output)
	}
	return nil
}

// LastWords are the last lines of a server's log.
func (s *Server) LastWords() string {
	log := s.Log()
	if len(log) > 4_000 {
		log = "…" + log[len(log)-4_000:]
	}
	return fmt.Sprintf("the last words of %s:\n%s", s.program, log)
}
