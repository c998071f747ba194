// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// version is a version of a namespace.
type version struct {
	*corev1.Namespace
	Status status.Status
	// SeenAt is when the watch event arrived.
	SeenAt time.Time
}

// hasReady reports whether the operator has reported the state.
func (v version) hasReady() bool {
	return slices.ContainsFunc(v.Namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
		return condition.Type == "Ready"
	})
}

// recorder watches all namespaces.
type recorder struct {
	lock     sync.Mutex
	versions []version
}

// startRecorder records until the suite ends.
func startRecorder(ctx context.Context) *recorder {
	GinkgoHelper()
	namespaces := cluster.Admin.Clientset().CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	runContext, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// The API server ends each watch after some time, so the watch resumes from the last resourceVersion.
	watcher, err := watchtools.NewRetryWatcherWithContext(runContext, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: namespaces.Watch,
	})
	Expect(err).NotTo(HaveOccurred())
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		for event := range watcher.ResultChan() {
			namespace, ok := event.Object.(*corev1.Namespace)
			Expect(ok).To(BeTrue(), "the watch cannot resume: %v", event.Object)
			r.add(namespace)
		}
		Expect(runContext.Err()).To(HaveOccurred(), "the watch has ended")
	}()
	DeferCleanup(func() {
		cancel()
		watcher.Stop()
		<-done
	})
	return r
}

func (r *recorder) add(namespace *corev1.Namespace) {
	seenAt := time.Now()
	result, err := status.Compute(toUnstructured(Default, namespace))
	Expect(err).NotTo(HaveOccurred())
	r.lock.Lock()
	defer r.lock.Unlock()
	r.versions = append(r.versions, version{Namespace: namespace, Status: result.Status, SeenAt: seenAt})
}

// of returns the versions of a namespace that have arrived.
func (r *recorder) of(name string) []version {
	r.lock.Lock()
	defer r.lock.Unlock()
	var found []version
	for _, candidate := range r.versions {
		if candidate.Name == name {
			found = append(found, candidate)
		}
	}
	return found
}

// readyAt returns when the first version with the condition Ready arrived. The time is zero if there is none.
func (r *recorder) readyAt(name string) time.Time {
	versions := r.of(name)
	if i := slices.IndexFunc(versions, version.hasReady); i >= 0 {
		return versions[i].SeenAt
	}
	return time.Time{}
}

// findEarly returns the versions for which kstatus returns Current although the namespace is Initializing or Failed.
// It ignores versions without the condition Ready: no condition can exist in the first milliseconds.
func (r *recorder) findEarly() []string {
	r.lock.Lock()
	defer r.lock.Unlock()
	var early []string
	for _, v := range r.versions {
		_, isInitializing := v.Labels[v1alpha1.LabelInitializing]
		_, hasResult := v.Annotations[v1alpha1.AnnotationInitializationResult]
		if v.Status == status.CurrentStatus && v.hasReady() && (isInitializing || hasResult) {
			early = append(early, fmt.Sprintf("%s %s: %+v", v.Name, v.ResourceVersion, v.Namespace.Status.Conditions))
		}
	}
	return early
}
