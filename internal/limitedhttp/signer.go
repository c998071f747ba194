// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package limitedhttp

import (
	"crypto"
	"crypto/tls"
	"io"
	"net"
)

// maxSignatures is the number of concurrent signatures in TLS handshakes of all servers. Signatures take most of the
// time of a handshake. Otherwise, a flood of handshakes could delay controllers until the manager loses its Lease.
const maxSignatures = 1

var signatures = make(chan struct{}, maxSignatures)

// limitSignatures limits the processor time of TLS handshakes.
func limitSignatures(config *tls.Config) *tls.Config {
	get := config.GetCertificate
	config = config.Clone()
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := get(hello)
		if err != nil {
			return nil, err
		}
		limited := *certificate
		if key, ok := limited.PrivateKey.(crypto.Signer); ok {
			limited.PrivateKey = limitedSigner{key, connectionOf(hello.Conn)}
		}
		return &limited, nil
	}
	return config
}

// limitedSigner signs for a connection.
type limitedSigner struct {
	crypto.Signer
	connection *Connection
}

// Sign implements crypto.Signer.
func (s limitedSigner) Sign(random io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	select {
	case signatures <- struct{}{}:
		defer func() { <-signatures }()
	case <-s.connection.ended:
		return nil, net.ErrClosed
	}
	return s.Signer.Sign(random, digest, options)
}
