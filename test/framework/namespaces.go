// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// Register registers initializers until the spec ends, and waits until the API server injects them
// into new namespaces.
func (c *Cluster) Register(ctx context.Context, name string, initializerNames ...string) {
	GinkgoHelper()
	c.RegisterConfiguration(ctx, wrappers.MakeConfiguration(name).Initializers(initializerNames...))
}

// RegisterConfiguration is like Register, but accepts initializers with settings.
func (c *Cluster) RegisterConfiguration(
	ctx context.Context, wrapper *wrappers.ConfigurationWrapper,
) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	configuration, name := wrapper.Obj(), wrapper.Name
	c.Admin.Creates(ctx, configuration)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(c.Admin.Delete(ctx, configuration))).To(Succeed())
		c.ExpectDeregistered(ctx, name)
	})
	c.ExpectActive(ctx, name)
	return configuration
}

// ExpectDeregistered waits until the API server no longer injects the initializers of a configuration that has been
// deleted.
func (c *Cluster) ExpectDeregistered(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(c.EffectiveSet(g, ctx).Initializers).NotTo(ContainElement(HaveField("Configuration", name)))
	}).WithContext(ctx).Should(Succeed())
	c.ExpectInjected(ctx)
}

// ExpectInjected waits until the API server injects the initializers in the NamespaceInitializerSet
// into new namespaces without labels, and removes keys that users must not set.
func (c *Cluster) ExpectInjected(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		const forged = v1alpha1.Prefix + "probe"
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "probe-", Annotations: map[string]string{forged: "x"},
		}}
		g.Expect(c.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).NotTo(HaveKey(forged))
		selected := initialization.Selected(c.EffectiveSet(g, ctx), probe.Labels)
		g.Expect(PendingOf(probe)).To(Equal(strings.Join(initialization.Names(selected), ",")))
	}).WithContext(ctx).Should(Succeed())
}

// ExpectActive waits until the Active condition of a configuration is True for its current
// generation.
func (c *Cluster) ExpectActive(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var now v1alpha1.NamespaceInitializerConfiguration
		g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: name}, &now)).To(Succeed())
		condition := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Status).To(Equal(metav1.ConditionTrue), condition.Message)
		g.Expect(condition.ObservedGeneration).To(Equal(now.Generation))
	}).WithContext(ctx).Should(Succeed())
}

// ExpectReason waits until the condition Active of a configuration has a reason.
func (c *Cluster) ExpectReason(ctx context.Context, name, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		configuration := &v1alpha1.NamespaceInitializerConfiguration{}
		g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: name}, configuration)).To(Succeed())
		active := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(active).To(HaveField("Reason", reason))
	}).WithContext(ctx).Should(Succeed())
}

// EffectiveSet returns the NamespaceInitializerSet that the inject policy uses.
func (c *Cluster) EffectiveSet(g Gomega, ctx context.Context) *internalv1alpha1.NamespaceInitializerSet {
	set := &internalv1alpha1.NamespaceInitializerSet{}
	g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, set)).To(Succeed())
	return set
}

// CreateNamespace creates a namespace as a user and returns the namespace in the response.
func CreateNamespace(ctx context.Context, user *User, name string) *corev1.Namespace {
	GinkgoHelper()
	return CreateAs(ctx, user, wrappers.MakeNamespace(name).Obj())
}

// CreateInitializing creates a namespace as the ordinary user. It is initializing until Finish is called: its
// initializer is not running.
func (c *Cluster) CreateInitializing(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	// The settings in the configurations of specs take precedence, because their names sort first.
	const configuration = "z-absent"
	if !c.hasAbsent {
		c.Admin.Creates(ctx, wrappers.MakeConfiguration(configuration).Initializer(Absent, v1alpha1.InitializerSettings{
			NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{absentLabel: ""}},
		}).Obj())
		c.hasAbsent = true
	}
	c.ExpectActive(ctx, configuration)
	namespace := MakeInitializing(Unique(prefix)).Obj()
	c.Ordinary.Creates(ctx, namespace)
	Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
	return namespace
}

// Absent is the initializer of CreateInitializing, which selects namespaces with a label.
const (
	Absent      = "absent.test.example.com"
	absentLabel = "test.example.com/absent"
)

// MakeInitializing builds a namespace like that of CreateInitializing, which must have been called earlier.
func MakeInitializing(name string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace(name).Label(absentLabel, "")
}

// Finish removes the first entry of the pending list of a namespace as the initializer user.
func (c *Cluster) Finish(ctx context.Context, name string) {
	GinkgoHelper()
	clientset := c.Initializer.Clientset()
	Eventually(func() error {
		namespace, err := clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(PendingOf(namespace), ",")
		if first == "" {
			return fmt.Errorf("namespace %s has no pending initializers", name)
		}
		return initializers.Finish(ctx, clientset, namespace, first)
	}).WithContext(ctx).Should(Succeed())
}

// GetNamespace returns the current namespace.
func (c *Cluster) GetNamespace(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(c.Admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// EventsAbout returns the type, reason and note of each Event about a Namespace with an action, or with any action if
// it is empty. An Event that occurred n times is returned n times.
func (c *Cluster) EventsAbout(g Gomega, ctx context.Context, namespace *corev1.Namespace, action string) []string {
	var list eventsv1.EventList
	g.Expect(c.Admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	events := []string{}
	for _, event := range list.Items {
		if event.Regarding.UID != namespace.UID || action != "" && event.Action != action {
			continue
		}
		times := 1
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		for range times {
			events = append(events, event.Type+" "+event.Reason+" "+event.Note)
		}
	}
	return events
}

// ExpectDeleted waits until an object no longer exists.
func ExpectDeleted(ctx context.Context, reader client.Reader, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return reader.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound), "%T %s still exists", object, object.GetName())
}

// ConditionMessage returns the message of a namespace's condition, or "" if there is no such
// condition.
func ConditionMessage(namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType) string {
	if condition := nsobject.FindCondition(namespace, conditionType); condition != nil {
		return condition.Message
	}
	return ""
}

// PendingOf returns a namespace's pending list.
func PendingOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
}

// History contains the states of a Namespace in the order of the changes.
type History struct {
	lock      sync.Mutex
	states    []*corev1.Namespace
	removed   chan struct{}
	removedAt time.Time
	err       error
}

// WatchNamespace records the states of a Namespace after its resourceVersion until the spec ends. A Namespace without
// a resourceVersion is watched from now on.
func WatchNamespace(ctx context.Context, config *rest.Config, namespace *corev1.Namespace) *History {
	GinkgoHelper()
	namespaces := (&User{Config: config}).Clientset().CoreV1().Namespaces()
	version := namespace.ResourceVersion
	if version == "" {
		list, err := namespaces.List(ctx, metav1.ListOptions{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		version = list.ResourceVersion
	}
	selector := "metadata.name=" + namespace.Name
	// The API server closes slow watches, so the watch resumes from the last resourceVersion.
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return namespaces.Watch(ctx, options)
		},
	})
	Expect(err).NotTo(HaveOccurred())
	h := &History{removed: make(chan struct{})}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watcher.ResultChan() {
			h.add(event)
		}
	})
	DeferCleanup(func() {
		watcher.Stop()
		done.Wait()
	})
	return h
}

func (h *History) add(event watch.Event) {
	h.lock.Lock()
	defer h.lock.Unlock()
	namespace, isNamespace := event.Object.(*corev1.Namespace)
	switch {
	case !isNamespace:
		h.err = fmt.Errorf("failed to watch a namespace: %v", event.Object)
		return
	case event.Type == watch.Deleted && h.removedAt.IsZero():
		h.removedAt = time.Now()
		close(h.removed)
	}
	h.states = append(h.states, namespace)
}

// States returns all states so far, including the final one.
func (h *History) States() []*corev1.Namespace {
	GinkgoHelper()
	h.lock.Lock()
	defer h.lock.Unlock()
	Expect(h.err).NotTo(HaveOccurred())
	return slices.Clone(h.states)
}

// WaitForRemoval waits until the Namespace no longer exists. It returns the final state and the time of the event.
func (h *History) WaitForRemoval(ctx context.Context) (*corev1.Namespace, time.Time) {
	GinkgoHelper()
	Eventually(h.removed).WithContext(ctx).Should(BeClosed())
	states := h.States()
	return states[len(states)-1], h.removedAt
}
