// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
)

// tlsConfig returns the configuration of the server. With a CA for clients, the server closes connections
// without a client certificate in the handshake.
func tlsConfig(options Options, certificate *Certificate) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: certificate.Get,
		// HTTP/2 is vulnerable to CVE-2023-44487, and would send all writes through one connection to one replica.
		NextProtos: []string{"http/1.1"},
	}
	if options.ClientCAFile == "" {
		return config, nil
	}
	data, err := os.ReadFile(options.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("failed to read the CA of the webhook clients: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf(msgInvalidClientCA, options.ClientCAFile)
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		name := state.PeerCertificates[0].Subject.CommonName
		if len(options.ClientNames) > 0 && !slices.Contains(options.ClientNames, name) {
			return fmt.Errorf(msgUnknownClient, name)
		}
		return nil
	}
	return config, nil
}
