package runner

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/tests/v3/framework/config"
	"go.etcd.io/etcd/tests/v3/framework/integration"
)

// certificatesFor returns what upstream's runners use: no files, a self-signed certificate, or upstream's fixtures, which
// require client certificates.
func certificatesFor(t testing.TB, cfg config.TLSConfig) (transport.TLSInfo, error) {
	switch cfg {
	case config.NoTLS:
		return transport.TLSInfo{}, nil
	case config.AutoTLS:
		return selfSigned(t.TempDir())
	case config.ManualTLS:
		return integration.TestTLSInfo, nil
	default:
		return transport.TLSInfo{}, fmt.Errorf("unknown TLS configuration: %q", cfg)
	}
}

// selfSigned does what etcd does for --auto-tls, except for the curve: P-256 instead of P-521.
func selfSigned(dir string) (info transport.TLSInfo, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return info, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour), // tolerates clock adjustments
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return info, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return info, err
	}
	info.CertFile, info.KeyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	info.InsecureSkipVerify = true // as upstream's clients do
	if err := writePEM(info.CertFile, "CERTIFICATE", certificate); err != nil {
		return info, err
	}
	return info, writePEM(info.KeyFile, "PRIVATE KEY", secret)
}

func writePEM(file, kind string, content []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
