// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// certificateDelay is the time after which a replica without a certificate is ready. The leader issues the certificate.
// During an upgrade, it can be a replica that does not, and that stops only when this one is ready.
const certificateDelay = 30 * time.Second

// Options configure the server of the webhooks.
type Options struct {
	// Address is the host and the port that the webhooks are served at. The host may be empty.
	Address string
	// Secret is the name of the Secret with the certificate, in the system namespace.
	Secret string
	// IsRotated makes the manager issue and rotate the certificate.
	IsRotated bool
	// Service is the name of the Service of the webhooks, in the system namespace.
	Service string
	// URL is the address of the webhooks for an API server that cannot reach the Service; empty
	// otherwise. Its host must be a DNS name: the rotator issues no certificates for IP addresses.
	URL string
	// ClientCAFile contains the CAs of the client certificates of API servers. If empty, clients need none.
	ClientCAFile string
	// ClientNames are the common names of these certificates. If empty, all are allowed.
	ClientNames []string
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	var errs []error
	if _, err := portOf(o.Address); err != nil {
		errs = append(errs, fmt.Errorf(msgInvalidAddress, o.Address))
	}
	if o.URL != "" {
		if _, err := o.host(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" {
		errs = append(errs, errors.New(msgNamesWithoutCA))
	}
	return errors.Join(errs...)
}

// host returns the host name in URL.
func (o *Options) host() (string, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" || net.ParseIP(base.Hostname()) != nil {
		return "", fmt.Errorf(msgInvalidURL, o.URL)
	}
	return base.Hostname(), nil
}

// NewServer adds the server of the webhooks, and the controllers of its certificate, to a manager. The
// caller registers the webhooks.
func NewServer(ctx context.Context, mgr ctrl.Manager, options Options, systemNamespace string) (*Server, error) {
	port, err := portOf(options.Address)
	if err != nil {
		return nil, err
	}
	names := []string{options.Service + "." + systemNamespace + ".svc"}
	if options.URL != "" {
		name, err := options.host()
		if err != nil {
			return nil, err
		}
		names = slices.Insert(names, 0, name) // The rotator compares the certificate only with the first name.
	}
	secret := types.NamespacedName{Namespace: systemNamespace, Name: options.Secret}
	certificate, err := watchCertificate(ctx, mgr, secret)
	if err != nil {
		return nil, err
	}
	if options.IsRotated {
		if err := rotate(mgr, secret, names, port); err != nil {
			return nil, err
		}
	}
	config, err := tlsConfig(options, certificate)
	if err != nil {
		return nil, err
	}
	server := newServer(options.Address, config, mgr.GetLogger().WithName("webhooks"))
	server.IsReady = server.check(certificate)
	if options.IsRotated {
		server.IsReady = readyCheck(certificate, server.IsReady)
	}
	return server, mgr.Add(server)
}

// readyCheck returns the check of a server whose certificate a manager issues.
func readyCheck(certificate *Certificate, isServing healthz.Checker) healthz.Checker {
	begin := time.Now()
	return func(request *http.Request) error {
		if certificate.current.Load() == nil && time.Since(begin) > certificateDelay {
			return nil
		}
		return isServing(request)
	}
}

func portOf(address string) (int, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
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
