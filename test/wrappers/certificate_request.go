// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package wrappers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
)

// MakeCertificateRequest returns a certificate signing request for a PodCertificateRequest, in base64. It is
// empty, like those that kubelets create, but the API server verifies its signature.
func MakeCertificateRequest() string {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(request)
}
