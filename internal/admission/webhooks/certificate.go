// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

const (
	// rotationRetry is the time between attempts to start the rotation.
	rotationRetry = time.Minute
	// certificateInterval is the time between reads of the first certificate from a cache.
	certificateInterval = 100 * time.Millisecond
)

// Certificate is the serving certificate of the webhooks. It is read from a Secret of type
// kubernetes.io/tls by a watch, so that a new certificate is used immediately, without the delay of
// a mounted Secret.
type Certificate struct {
	current atomic.Pointer[tls.Certificate]
	log     logr.Logger
}

// watchSecret calls a function with a Secret whenever it changes, and with an empty one when it is deleted.
func watchSecret(ctx context.Context, mgr ctrl.Manager, secret types.NamespacedName, load func(*corev1.Secret)) error {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{secret.Namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", secret.Name),
			}},
		}},
	})
	if err != nil {
		return fmt.Errorf("failed to create a cache for the certificate: %w", err)
	}
	informer, err := secrets.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("failed to start the informer of the certificate: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { load(object.(*corev1.Secret)) },
		UpdateFunc: func(_, object any) { load(object.(*corev1.Secret)) },
		DeleteFunc: func(any) { load(&corev1.Secret{}) },
	}); err != nil {
		return fmt.Errorf("failed to watch the certificate: %w", err)
	}
	return mgr.Add(onEveryReplica{secrets})
}

// Get implements tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := c.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New(messageNoCertificate)
}

// load keeps the current certificate if the Secret contains none, or an invalid one.
func (c *Certificate) load(secret *corev1.Secret) {
	if len(secret.Data[corev1.TLSCertKey]) == 0 {
		return
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		c.log.Error(err, messageInvalidCertificate, "secret", client.ObjectKeyFromObject(secret))
		return
	}
	c.current.Store(&certificate)
}

// rotations numbers the controllers that rotate certificates, because their names must be unique in a process.
var rotations atomic.Int64

// RotateCertificate keeps the certificate in the Secret valid for the DNS names of the webhooks, and its CA in the
// webhook configurations. The leader does so. It does nothing if another controller issues the certificate.
func RotateCertificate(mgr ctrl.Manager, options Options, systemNamespace string) error {
	if !options.IsRotated {
		return nil
	}
	names, err := options.names(systemNamespace)
	if err != nil {
		return err
	}
	// The rotator waits for a file with the certificate, and fails without it. Here, the certificate is
	// read from the Secret.
	directory, err := os.MkdirTemp("", "nslifecycle-webhook-")
	if err != nil {
		return fmt.Errorf("failed to create a directory for the rotation of the certificate: %w", err)
	}
	if err := os.WriteFile(filepath.Join(directory, corev1.TLSCertKey), nil, 0o600); err != nil {
		return fmt.Errorf("failed to create a file for the rotation of the certificate: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return os.RemoveAll(directory)
	})); err != nil {
		return err
	}
	secret := types.NamespacedName{Namespace: systemNamespace, Name: SecretName}
	if err := rotator.AddRotator(&resilient{Manager: mgr, secret: secret}, &rotator.CertRotator{
		SecretKey:      secret,
		CertDir:        directory,
		CAName:         "nslifecycle-webhook-ca",
		CAOrganization: "nslifecycle",
		DNSName:        names[0],
		ExtraDNSNames:  names[1:],
		ControllerName: fmt.Sprintf("webhook-certificate-%d", rotations.Add(1)),
		IsReady:        make(chan struct{}),
		Webhooks: []rotator.WebhookInfo{
			{Name: internalv1alpha1.TemplatesConfiguration, Type: rotator.Validating},
			{Name: internalv1alpha1.HoldConfiguration, Type: rotator.Mutating},
			{Name: internalv1alpha1.InjectConfiguration, Type: rotator.Mutating},
		},
		FieldOwner:            nsobject.FieldOwner,
		RequireLeaderElection: true,
	}); err != nil {
		return fmt.Errorf("failed to set up the rotation of the certificate: %w", err)
	}
	return nil
}

// onEveryReplica is a runnable that also runs while the manager is not the leader. A cache with
// options for single types would otherwise run only on the leader.
type onEveryReplica struct{ manager.Runnable }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEveryReplica) NeedLeaderElection() bool { return false }

// resilient is a manager that does not stop, and with it all controllers, when the rotator fails. Its configuration
// restricts the rotator, which lists all Secrets of a namespace, to the one in its permissions.
type resilient struct {
	ctrl.Manager
	// secret contains the certificate.
	secret types.NamespacedName
	// objects is the cache of the rotator, which the rotator adds before itself and its controller.
	objects cache.Cache
}

// GetConfig implements cluster.Cluster.
func (m *resilient) GetConfig() *rest.Config {
	config := rest.CopyConfig(m.Manager.GetConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return selectSecret{next} })
	return config
}

// selectSecret adds the name of the Secret to requests that list or watch Secrets.
type selectSecret struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s selectSecret) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/secrets") {
		request = request.Clone(request.Context())
		query := request.URL.Query()
		query.Set("fieldSelector", fields.OneTermEqualSelector("metadata.name", SecretName).String())
		request.URL.RawQuery = query.Encode()
	}
	return s.RoundTripper.RoundTrip(request)
}

// Add implements manager.Manager.
func (m *resilient) Add(runnable manager.Runnable) error {
	switch typed := runnable.(type) {
	case cache.Cache:
		m.objects = typed
	case *rotator.CertRotator:
		runnable = restartable{runnable, m.objects, m.GetLogger().WithName("webhooks")}
	case controller.Controller:
		runnable = afterCertificate{runnable, m.objects, m.secret}
	}
	return m.Manager.Add(runnable)
}

// afterCertificate starts the controller of the rotator when the Secret contains a certificate. Otherwise, the rotator
// and its controller would both issue the first one, and log the conflict as an error.
type afterCertificate struct {
	manager.Runnable
	objects client.Reader
	secret  types.NamespacedName
}

// Start implements manager.Runnable.
func (a afterCertificate) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, certificateInterval, true, func(ctx context.Context) (bool, error) {
		secret := &corev1.Secret{}
		err := a.objects.Get(ctx, a.secret, secret) // Fails while the cache has not started.
		return err == nil && len(secret.Data[corev1.TLSCertKey]) > 0, nil
	})
	if err != nil {
		return nil // The context is done.
	}
	return a.Runnable.Start(ctx)
}

// restartable restarts the rotator until it has read the Secret and, if necessary, written a certificate to it. After
// that, another start would panic, because the rotator closes channels that AddRotator creates. Therefore, later errors
// are only logged: the rotator stops if it cannot write its CA to the webhook configurations within 9 to 17 minutes.
// The rotator's controller, which is a runnable of its own, still retries this write. It also renews the certificate,
// with every event of the Secret and the webhook configurations, and with every resync of its cache, about every 10
// hours.
type restartable struct {
	manager.Runnable
	informers cache.Informers
	log       logr.Logger
}

// Start implements manager.Runnable. The rotator reads the Secret without a context: if the manager stops before the
// Secret is in the cache, the rotator would wait forever.
func (r restartable) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, rotationRetry, true, func(ctx context.Context) (bool, error) {
		if _, err := r.informers.GetInformer(ctx, &corev1.Secret{}); err != nil {
			if ctx.Err() == nil { // Otherwise, the manager stops.
				r.log.Error(err, messageRotationFailed)
			}
			return false, nil
		}
		err := r.Runnable.Start(ctx)
		if err != nil {
			r.log.Error(err, messageRotationFailed)
		}
		// The errors of the first refresh: the Secret does not exist, or cannot be written.
		return !apierrors.IsNotFound(err) && !wait.Interrupted(err), nil
	})
	return nil
}
