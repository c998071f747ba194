// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// certificateDelay is the time after which a replica without a certificate is ready. During an upgrade, the process
// that issues the certificate can be an earlier replica, which stops only when this one is ready.
const certificateDelay = 30 * time.Second

// disabledAddress is the value of Options.Address of a manager that does not serve the webhooks.
const disabledAddress = "0"

// The Service of the webhooks, and the Secret with their certificate, in the system namespace.
const (
	ServiceName = "nslifecycle-webhook"
	SecretName  = "nslifecycle-webhook-certificate"
)

// Options configure the server of the webhooks, and the controller that publishes its address and certificate.
type Options struct {
	// Address is the host and the port that the webhooks are served at. The host may be empty. "0" disables the server.
	Address string
	// IsRotated makes the admission controller issue and rotate the certificate.
	IsRotated bool
	// URL is the address of the webhooks for an API server that cannot reach the Service; empty
	// otherwise. Its host must be a DNS name: the rotator issues no certificates for IP addresses.
	URL string
	// ClientCAFile contains the CAs of the client certificates of API servers. If empty, clients need none.
	ClientCAFile string
	// ClientNames are the common names of these certificates. If empty, all are allowed.
	ClientNames []string
}

// Defaults returns the options of a manager that does not serve the webhooks, and issues their certificate.
func Defaults() Options {
	return Options{Address: disabledAddress, IsRotated: true}
}

// IsServed reports whether the manager serves the webhooks.
func (o *Options) IsServed() bool { return o.Address != disabledAddress }

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	var errs []error
	if o.IsServed() && !isAddress(o.Address) {
		errs = append(errs, fmt.Errorf(messageInvalidAddress, o.Address))
	}
	if o.URL != "" {
		if _, err := o.host(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" {
		errs = append(errs, errors.New(messageNamesWithoutCA))
	}
	return errors.Join(errs...)
}

func (o *Options) host() (string, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" || net.ParseIP(base.Hostname()) != nil {
		return "", fmt.Errorf(messageInvalidURL, o.URL)
	}
	return base.Hostname(), nil
}

// names returns the DNS names at which API servers call the webhooks.
func (o *Options) names(systemNamespace string) ([]string, error) {
	service := ServiceName + "." + systemNamespace + ".svc"
	if o.URL == "" {
		return []string{service}, nil
	}
	host, err := o.host()
	return []string{host, service}, err // The rotator compares the certificate only with the first name.
}

// NewServer adds the server of the webhooks, and the watch of its Secret, to a manager. The caller registers the
// webhooks.
func NewServer(ctx context.Context, mgr ctrl.Manager, options Options, systemNamespace string) (*Server, error) {
	log := mgr.GetLogger().WithName("webhooks")
	certificate := &Certificate{log: log}
	config, err := tlsConfig(options, certificate)
	if err != nil {
		return nil, err
	}
	server := newServer(options.Address, config, log)
	secret := types.NamespacedName{Namespace: systemNamespace, Name: SecretName}
	if err := watchSecret(ctx, mgr, secret, func(secret *corev1.Secret) {
		certificate.load(secret)
		server.token.load(secret)
	}); err != nil {
		return nil, err
	}
	server.IsReady = readyCheck(certificate, server.check(certificate))
	return server, mgr.Add(server)
}

// readyCheck returns the check of a server whose certificate another process issues.
func readyCheck(certificate *Certificate, isServing healthz.Checker) healthz.Checker {
	begin := time.Now()
	return func(request *http.Request) error {
		if certificate.current.Load() == nil && time.Since(begin) > certificateDelay {
			return nil
		}
		return isServing(request)
	}
}

func isAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.Atoi(port)
	}
	return err == nil
}

// SetPath changes the path of a webhook, and its address unless base is empty.
func SetPath(target *admissionregistrationv1.WebhookClientConfig, base, path string) {
	if base == "" && target.Service != nil {
		target.Service.Path = &path
		return
	}
	if current, err := url.Parse(ptr.Deref(target.URL, "")); err == nil && base == "" {
		base = current.Scheme + "://" + current.Host
	}
	target.URL, target.Service = new(base+path), nil
}

// SetURL changes the address of a webhook and preserves its path.
func SetURL(target *admissionregistrationv1.WebhookClientConfig, base string) {
	var path string
	if target.Service != nil {
		path = ptr.Deref(target.Service.Path, "")
	} else if current, err := url.Parse(ptr.Deref(target.URL, "")); err == nil {
		path = current.Path
	}
	SetPath(target, base, path)
}

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
		return nil, fmt.Errorf(messageInvalidClientCA, options.ClientCAFile)
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		name := state.PeerCertificates[0].Subject.CommonName
		if len(options.ClientNames) > 0 && !slices.Contains(options.ClientNames, name) {
			return fmt.Errorf(messageUnknownClient, name)
		}
		return nil
	}
	return config, nil
}

const (
	messageInvalidCertificate = "Secret contains no valid certificate"
	messageNoCertificate      = "no certificate has been loaded"
	messageNotServing         = "the webhook server has not been started"
	messagePanic              = "Webhook panicked"
	messageRefused            = "Refused a review; further refusals are logged once per minute"
	messageUnauthenticated    = "the request has no valid token"
	messageRotationFailed     = "Failed to rotate the certificate"

	// Errors of the flags.
	messageInvalidAddress  = "--webhook-bind-address %q is not an address such as :9443"
	messageInvalidURL      = "--webhook-url %q is not an https URL with a DNS name"
	messageNamesWithoutCA  = "--webhook-client-allowed-names requires --webhook-client-ca-file"
	messageInvalidClientCA = "--webhook-client-ca-file %q contains no certificate"
	messageUnknownClient   = "the client certificate for %q is not allowed"
)
