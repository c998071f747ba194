// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// stopTimeout is the maximum time until the watches and the logs are complete.
	stopTimeout  = 30 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Server is an API server with an audit log at level RequestResponse.
type Server struct {
	// Config is the configuration of a member of system:masters.
	Config *rest.Config
	// Log is the path of the audit log.
	Log string
}

// Observer records the requests to the API servers of a control plane, and the changes of Namespaces and
// of objects.
type Observer struct {
	servers []Server
	// offsets are the sizes of the logs when the observer started.
	offsets []int64
	watches []*resourceWatch
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// Start starts an observer. It watches Namespaces and the given resources through the first server, which
// must respond all the time.
func Start(
	ctx context.Context, servers []Server, resources ...schema.GroupVersionResource,
) (*Observer, error) {
	o := &Observer{servers: servers}
	for _, server := range servers {
		info, err := os.Stat(server.Log)
		if err != nil {
			return nil, fmt.Errorf("failed to read the size of an audit log: %w", err)
		}
		o.offsets = append(o.offsets, info.Size())
	}
	client, err := dynamic.NewForConfig(unlimited(servers[0].Config))
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o.cancel = cancel
	namespaces := corev1.SchemeGroupVersion.WithResource(namespacesResource)
	for _, resource := range append([]schema.GroupVersionResource{namespaces}, resources...) {
		w := &resourceWatch{resource: resource.Resource, client: client.Resource(resource), last: map[types.UID]Change{}}
		if err := w.start(running, &o.done); err != nil {
			cancel()
			return nil, err
		}
		o.watches = append(o.watches, w)
	}
	return o, nil
}

// Stop stops the observer and returns all violations between Start and Stop. All API servers must respond.
func (o *Observer) Stop(ctx context.Context, rules Rules) ([]Violation, error) {
	evidence, err := o.Collect(ctx)
	o.cancel()
	o.done.Wait()
	if err != nil {
		return nil, err
	}
	return Check(evidence, rules), nil
}

// Collect returns everything that was recorded between Start and Collect. All API servers must respond.
func (o *Observer) Collect(ctx context.Context) (Evidence, error) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var evidence Evidence
	// Later changes of a Namespace and of its content can be incomplete.
	var revision uint64
	for _, w := range o.watches {
		current, err := w.waitUntilCurrent(ctx)
		if err != nil {
			return evidence, err
		}
		revision = cmp.Or(revision, current)
		evidence.Changes = append(evidence.Changes, w.recorded(revision)...)
	}
	for i, server := range o.servers {
		if err := server.waitForLog(ctx); err != nil {
			return evidence, err
		}
		events, err := ReadLog(server.Log, o.offsets[i])
		if err != nil {
			return evidence, err
		}
		for _, event := range events {
			if revisionOf(&event.ResponseObject) > revision {
				continue
			}
			evidence.Events = append(evidence.Events, event)
		}
	}
	return evidence, nil
}

// waitForLog sends a request with a unique user agent and waits until it is in the audit log. The API
// server has then logged all requests to which it responded earlier.
func (s *Server) waitForLog(ctx context.Context) error {
	file, err := os.Open(s.Log)
	if err != nil {
		return fmt.Errorf("failed to open audit log: %w", err)
	}
	defer file.Close()
	before, err := file.Seek(0, io.SeekEnd) // Logs grow to megabytes.
	if err != nil {
		return fmt.Errorf("failed to read audit log: %w", err)
	}
	config := rest.CopyConfig(s.Config)
	config.UserAgent = "observer/" + string(uuid.NewUUID())
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: namespacesResource},
	}}
	reviews := clientset.AuthorizationV1().SelfSubjectAccessReviews()
	if _, err := reviews.Create(ctx, review, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create a SelfSubjectAccessReview: %w", err)
	}
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		content, err := io.ReadAll(io.NewSectionReader(file, before, math.MaxInt64-before))
		return bytes.Contains(content, []byte(config.UserAgent)), err
	})
	if err != nil {
		return fmt.Errorf("failed to find the last request in audit log %s: %w", s.Log, err)
	}
	return nil
}

// Authorizer returns a function for Rules.MayWrite. It creates a SubjectAccessReview the first time that
// it is called with given arguments, so the permissions must still exist. An error counts as no permission.
func Authorizer(ctx context.Context, config *rest.Config) (
	func(user authenticationv1.UserInfo, namespace string, verbs ...string) bool, error,
) {
	clientset, err := kubernetes.NewForConfig(unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("failed to create a client: %w", err)
	}
	reviews, cache := clientset.AuthorizationV1().SubjectAccessReviews(), map[string]bool{}
	return func(user authenticationv1.UserInfo, namespace string, verbs ...string) bool {
		for _, verb := range verbs {
			key := strings.Join(append([]string{user.Username, namespace, verb}, user.Groups...), "\n")
			isAllowed, ok := cache[key]
			if !ok {
				review, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{
						User: user.Username, Groups: user.Groups, UID: user.UID,
						ResourceAttributes: &authorizationv1.ResourceAttributes{
							Verb: verb, Resource: namespacesResource, Name: namespace,
						},
					},
				}, metav1.CreateOptions{})
				isAllowed = err == nil && review.Status.Allowed
				cache[key] = isAllowed
			}
			if isAllowed {
				return true
			}
		}
		return false
	}, nil
}

// unlimited returns a copy of a configuration without a client-side rate limit.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

var errWatchEnded = errors.New("the watch ended before the observer was stopped")
