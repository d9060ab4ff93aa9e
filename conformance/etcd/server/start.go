package server

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// The ids that every server and its cluster have.
const (
	ClusterID uint64 = 0x1c45a069f3a1d796
	MemberID  uint64 = 0xb71f75320dc06a6c
)

var serving = regexp.MustCompile(`(?m)^.* serving .*\baddress=(\S+)$`)

// peer is the advertised peer URL of the only member.
const peer = "http://127.0.0.1:2380"

// startGitcd uses the ids and the peer URL of startEtcd.
func (s *Server) startGitcd() error {
	arguments := []string{
		"serve", s.repository(),
		"--listen-urls=" + s.listen(), "--advertise-client-urls=" + s.advertised(), "--initial-advertise-peer-urls=" + peer,
		"--cluster-ids=" + strconv.FormatUint(ClusterID, 10), "--member-ids=" + strconv.FormatUint(MemberID, 10),
	}
	if s.options.QuotaBytes != 0 {
		arguments = append(arguments, s.quota())
	}
	if s.options.Cert != "" {
		arguments = append(arguments, "--tls-cert="+s.options.Cert, "--tls-key="+s.options.Key)
	}
	if s.options.Authority != "" {
		arguments = append(arguments, "--tls-trusted-ca-certs="+s.options.Authority)
	}
	return s.start(exec.Command(s.program.path, append(arguments, s.options.GitcdArguments...)...), serving)
}

var servingTraffic = regexp.MustCompile(`"serving client traffic .*"address":"([^"]+)"`)

// startEtcd makes the only member elect itself as fast as etcd allows. The ids of the member and its cluster are always
// the same: etcd derives them from the peer URL.
func (s *Server) startEtcd() error {
	arguments := []string{
		"--name=default", "--logger=zap", "--unsafe-no-fsync",
		"--heartbeat-interval=10", "--election-timeout=100",
		"--data-dir=" + filepath.Join(s.dir, "data"),
		"--listen-client-urls=" + s.listen(), "--advertise-client-urls=" + s.advertised(),
		"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
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
	command := exec.Command(s.program.path, append(arguments, s.options.EtcdArguments...)...)
	if err := s.start(command, servingTraffic); err != nil {
		return err
	}
	// etcd cleans up and then exits by the signal that it received.
	s.process.endsBySignal = true
	return nil
}

// start runs the command and waits until its log has the address that it serves.
func (s *Server) start(command *exec.Cmd, serving *regexp.Regexp) error {
	p, err := launch(command, s.log())
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

// listen lets the kernel choose the port at the first start, so that no other process can take it in between.
func (s *Server) listen() string {
	return s.scheme() + "://" + cmp.Or(s.address, "127.0.0.1:0")
}

// advertised is the same for all servers by default: few clients look up members to find them.
func (s *Server) advertised() string {
	if s.options.Advertise {
		return s.scheme() + "://" + cmp.Or(s.address, "127.0.0.1:2379")
	}
	return s.scheme() + "://127.0.0.1:2379"
}

func run(program string, arguments ...string) error {
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, arguments, err, output)
	}
	return nil
}

// LastWords returns the end of the server's log, for messages.
func (s *Server) LastWords() string {
	log := s.Log()
	if len(log) > 4_000 {
		log = "…" + log[len(log)-4_000:]
	}
	return fmt.Sprintf("end of the log of %s:\n%s", s.program, log)
}
