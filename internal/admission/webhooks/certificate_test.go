// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestRestart verifies that the rotator is not started again after its first refresh: it would panic.
func TestRestart(t *testing.T) {
	notFound := fmt.Errorf("failed to get the Secret: %w", apierrors.NewNotFound(corev1.Resource("secrets"), "certificate"))
	for name, test := range map[string]struct {
		results []error
		starts  int
	}{
		"Secret created and written later": {[]error{notFound, wait.ErrorInterrupted(nil), nil, nil}, 3},
		"CA not injected":                  {[]error{errors.New("could not inject certs to webhooks"), nil}, 1},
		"CA not injected after a restart":  {[]error{notFound, errors.New("could not inject certs to webhooks"), nil}, 2},
		"unknown error":                    {[]error{errors.New("unknown"), nil}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				runnable := restartable{manager.RunnableFunc(func(context.Context) error {
					starts++
					return test.results[starts-1]
				}), &informertest.FakeInformers{}, logr.Discard()}
				if err := runnable.Start(t.Context()); err != nil {
					t.Errorf("got %v, which stops the manager", err)
				}
				if starts != test.starts {
					t.Errorf("started %d times, want %d", starts, test.starts)
				}
			})
		})
	}
}

// TestRestartableStops verifies that the rotator is not started without the Secret, which it reads without a context.
func TestRestartableStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		runnable := restartable{manager.RunnableFunc(func(context.Context) error {
			t.Error("started the rotator")
			return nil
		}), unsynced{}, logr.Discard()}
		if err := runnable.Start(ctx); err != nil {
			t.Error(err)
		}
	})
}

// unsynced is a cache that was stopped before it has listed objects.
type unsynced struct{ cache.Informers }

func (unsynced) GetInformer(ctx context.Context, _ client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestResilient verifies that only the rotator is wrapped, and runs only on the leader.
func TestResilient(t *testing.T) {
	added := &recordingManager{}
	mgr := &resilient{Manager: added}
	other := manager.RunnableFunc(func(context.Context) error { return nil })
	informers := &informertest.FakeInformers{}
	if err := errors.Join(mgr.Add(informers), mgr.Add(&rotator.CertRotator{}), mgr.Add(onEveryReplica{other})); err != nil {
		t.Fatal(err)
	}
	if wrapped, ok := added.runnables[1].(restartable); !ok || wrapped.informers != cache.Informers(informers) {
		t.Errorf("added the rotator as %T", added.runnables[1])
	}
	if _, ok := added.runnables[1].(manager.LeaderElectionRunnable); ok {
		t.Error("the rotator does not run only on the leader")
	}
	if _, ok := added.runnables[2].(onEveryReplica); !ok {
		t.Errorf("added another runnable as %T", added.runnables[2])
	}
}

// TestAfterCertificate verifies that the controller of the rotator waits for the certificate.
func TestAfterCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: SecretName}}
		objects := fake.NewClientBuilder().WithObjects(secret).Build()
		started := false
		runnable := afterCertificate{manager.RunnableFunc(func(context.Context) error {
			started = true
			return nil
		}), objects, client.ObjectKeyFromObject(secret)}

		stopped, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := runnable.Start(stopped); err != nil || started {
			t.Errorf("started = %v without a certificate, error %v", started, err)
		}
		secret.Data = map[string][]byte{corev1.TLSCertKey: []byte("certificate")}
		if err := errors.Join(objects.Update(t.Context(), secret), runnable.Start(t.Context())); err != nil || !started {
			t.Errorf("started = %v with a certificate, error %v", started, err)
		}
	})
}

type recordingManager struct {
	ctrl.Manager
	runnables []manager.Runnable
}

func (m *recordingManager) Add(runnable manager.Runnable) error {
	m.runnables = append(m.runnables, runnable)
	return nil
}

func (m *recordingManager) GetLogger() logr.Logger { return logr.Discard() }

func TestReadyCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notServing := errors.New("the server is not serving")
		certificate := &Certificate{}
		check := readyCheck(certificate, func(*http.Request) error { return notServing })
		time.Sleep(certificateDelay)
		if err := check(nil); !errors.Is(err, notServing) {
			t.Errorf("while the leader can issue a certificate: got %v", err)
		}
		time.Sleep(time.Second)
		if err := check(nil); err != nil {
			t.Errorf("without a certificate: got %v", err)
		}
		certificate.current.Store(&tls.Certificate{})
		if err := check(nil); !errors.Is(err, notServing) {
			t.Errorf("with a certificate: got %v", err)
		}
	})
}
