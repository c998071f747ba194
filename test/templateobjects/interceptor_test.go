// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package templateobjects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// fault is what happens to a request of the operator.
type fault int

const (
	noFault fault = iota
	// notSent: the API server does not get the request.
	notSent
	// notAnswered: the API server handles the request, and the operator does not get the response.
	notAnswered
)

var errInterrupted = errors.New("the test has interrupted the request")

// interceptor intercepts the requests of a manager.
type interceptor struct {
	mutex    sync.Mutex
	onSend   func(*http.Request) fault
	requests []string
	// paused is part of the path of the watches that do not get events until resumed is closed.
	paused  string
	resumed chan struct{}
}

// restartManager replaces the manager by one whose requests are intercepted. The container must call
// restoreManager after each spec.
func restartManager(
	ctx context.Context, onSend func(*http.Request) fault, changes ...func(*manager.Options),
) *interceptor {
	GinkgoHelper()
	cluster.StopManager()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	i := &interceptor{onSend: onSend}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &interceptedTransport{i, next} })
	cluster.Manager, err = cluster.StartManagerAs(ctx, config, changes...)
	Expect(err).NotTo(HaveOccurred())
	return i
}

func restoreManager(ctx context.Context) {
	GinkgoHelper()
	cluster.StopManager()
	cluster.StartManager(ctx)
}

// set replaces the function that is called before each request.
func (i *interceptor) set(onSend func(*http.Request) fault) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.onSend = onSend
}

// sent returns the requests since the last call, each as its method and URI.
func (i *interceptor) sent() []string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	requests := i.requests
	i.requests = nil
	return requests
}

// pause holds the events of the watches of a resource until the returned function is called.
func (i *interceptor) pause(resource string) (resume func()) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	resumed := make(chan struct{})
	i.paused, i.resumed = "/"+resource, resumed
	return sync.OnceFunc(func() {
		i.mutex.Lock()
		defer i.mutex.Unlock()
		i.paused = ""
		close(resumed)
	})
}

type interceptedTransport struct {
	*interceptor
	next http.RoundTripper
}

func (t *interceptedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.mutex.Lock()
	t.requests = append(t.requests, request.Method+" "+request.URL.RequestURI())
	onSend := t.onSend
	t.mutex.Unlock()
	happens := noFault
	if onSend != nil {
		happens = onSend(request)
	}
	if happens == notSent {
		return nil, errInterrupted
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if happens == notAnswered {
		return nil, errors.Join(errInterrupted, response.Body.Close())
	}
	if request.URL.Query().Get("watch") != "" {
		response.Body = &pausableBody{ReadCloser: response.Body, interceptor: t.interceptor, request: request}
	}
	return response, nil
}

// pausableBody is the response to a watch.
type pausableBody struct {
	io.ReadCloser
	*interceptor
	request *http.Request
}

func (b *pausableBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mutex.Lock()
	isPaused, resumed := b.paused != "" && strings.HasSuffix(b.request.URL.Path, b.paused), b.resumed
	b.mutex.Unlock()
	if isPaused {
		select {
		case <-resumed:
		case <-b.request.Context().Done():
		}
	}
	return n, err
}

// isTemplateWrite reports whether a request changes an object in a Namespace, or the annotations of the
// Namespace.
func isTemplateWrite(request *http.Request, namespace string) bool {
	path := "/namespaces/" + namespace
	if request.Method == http.MethodGet || request.URL.Query().Get("dryRun") != "" {
		return false
	}
	return strings.Contains(request.URL.Path, path+"/") && !strings.HasSuffix(request.URL.Path, "/status") ||
		strings.HasSuffix(request.URL.Path, path+"/status") && contains(request, v1alpha1.AnnotationTemplates)
}

// contains reports whether the body of a request contains a text.
func contains(request *http.Request, text string) bool {
	body, err := request.GetBody()
	if err != nil {
		return false
	}
	content, err := io.ReadAll(body)
	return err == nil && strings.Contains(string(content), text)
}

// writes returns the requests that change objects: no reads, reviews, Events and dry runs. Namespaces of
// earlier specs can be terminating.
func writes(requests []string) []string {
	return slices.DeleteFunc(requests, func(request string) bool {
		return strings.HasPrefix(request, "GET ") || strings.Contains(request, "/apis/authorization.k8s.io/") ||
			strings.Contains(request, "/apis/events.k8s.io/") || strings.Contains(request, "dryRun=All") ||
			strings.Contains(request, "/finalize?") || strings.Contains(request, "/mutatingadmissionpolicies/")
	})
}

// countContaining returns how many requests contain a text.
func countContaining(requests []string, text string) int {
	return len(slices.DeleteFunc(requests, func(request string) bool { return !strings.Contains(request, text) }))
}

// requestsSoFar returns the requests since the last call of sent.
func (i *interceptor) requestsSoFar() []string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return slices.Clone(i.requests)
}
