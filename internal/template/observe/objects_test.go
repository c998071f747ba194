// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	configKey  = template.ObjectKey{Kind: configMaps.GroupKind(), Name: "config"}
)

// fakeCache contains at most one object.
type fakeCache struct {
	cache.Cache
	object  *metav1.PartialObjectMetadata
	removed []string
}

type fakeInformer struct {
	toolscache.SharedIndexInformer
	store toolscache.Store
}

func (fakeInformer) HasSynced() bool { return true }

func (i fakeInformer) GetStore() toolscache.Store { return i.store }

func (fakeInformer) AddEventHandler(
	toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// GetInformer returns an informer with the object for each kind.
func (c *fakeCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	if c.object == nil {
		return fakeInformer{store: store}, nil
	}
	return fakeInformer{store: store}, store.Add(compacted(c.object))
}

func (c *fakeCache) RemoveInformer(_ context.Context, object client.Object) error {
	c.removed = append(c.removed, object.GetObjectKind().GroupVersionKind().Kind)
	return nil
}

// compacted returns what the cache keeps of an object.
func compacted(object client.Object) *cachedObject {
	kept, _ := compact(object)
	again, _ := compact(kept) // The cache transforms objects again.
	return again.(*cachedObject)
}

// objectWith returns an object of template "a" as the API server returns it.
func objectWith(resourceVersion string, created time.Time) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "config", Namespace: "ns", UID: objectUID, ResourceVersion: resourceVersion,
		CreationTimestamp: metav1.NewTime(created),
		Labels:            map[string]string{v1alpha1.LabelManagedByTemplate: "a", "other": "x"},
		Annotations:       map[string]string{v1alpha1.AnnotationNamespaceUID: namespaceUID},
		ManagedFields: []metav1.ManagedFieldsEntry{
			entryOf("rival", metav1.ManagedFieldsOperationApply, "", "{}"),
			entryOf(template.FieldManager("a"), metav1.ManagedFieldsOperationApply, "", `{"f:data":{}}`),
		},
	}}
}

func entryOf(
	manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string,
) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields),
		Time: ptr.To(metav1.NewTime(time.Unix(1000, 0))),
	}
}

func TestOwnWrites(t *testing.T) {
	now := time.Now()
	tests := map[string]struct {
		cached  *metav1.PartialObjectMetadata
		elapsed time.Duration
		deleted *metav1.PartialObjectMetadata
		want    string
	}{
		"not in the cache yet":              {want: "10"},
		"an older version in the cache":     {cached: objectWith("9", now), want: "10"},
		"the same version in the cache":     {cached: objectWith("10", now), want: "10"},
		"a newer version in the cache":      {cached: objectWith("11", now), want: "11"},
		"never in the cache":                {elapsed: OwnWriteTimeout + 1},
		"an older version, after some time": {cached: objectWith("9", now), elapsed: OwnWriteTimeout + 1, want: "9"},
		"deleted":                           {deleted: objectWith("10", now)},
		"the previous object was deleted": {
			deleted: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "ns", UID: "old"}},
			want:    "10",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(now)
			var notified []string
			writes, namespace := &Writes{Clock: clock}, namespaceWith("1", "")
			objects := NewObjects(&fakeCache{object: test.cached}, writes, clock, func(n string) { notified = append(notified, n) })
			_, err := objects.get(configMaps, namespace, "config")
			g.Expect(err).To(MatchError(template.ErrNotSynced), "the kind is not watched yet")
			g.Expect(objects.ensure(t.Context(), configMaps)).To(Succeed())
			writes.Wrote(namespace, configKey, plan.ObservedOf(&objectWith("10", now).ObjectMeta))
			if test.deleted != nil {
				objects.notifyDeleted(configMaps, toolscache.DeletedFinalStateUnknown{Obj: compacted(test.deleted)})
				g.Expect(notified).To(HaveLen(1))
			}
			clock.SetTime(now.Add(test.elapsed))
			current, err := objects.get(configMaps, namespace, "config")
			g.Expect(err).NotTo(HaveOccurred())
			if test.want == "" {
				g.Expect(current).To(BeNil())
				return
			}
			g.Expect(current.ResourceVersion).To(Equal(test.want))
			objects.notify(configMaps, compacted(objectWith("10", now)))
			notifiedBefore := len(notified)
			objects.notify(configMaps, compacted(objectWith("12", now)))
			g.Expect(notified).To(HaveLen(notifiedBefore + 1))
			writes.Forget("ns")
			g.Expect(writes.isOwn("ns", configKey, "10")).To(BeFalse())
		})
	}
}

func TestOwnWritesAreNotNotified(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	clock := clocktesting.NewFakePassiveClock(now)
	writes, namespace := &Writes{Clock: clock}, namespaceWith("1", "")
	objects := NewObjects(&fakeCache{}, writes, clock, func(string) { t.Error("notified") })
	writes.Wrote(namespace, configKey, plan.ObservedOf(&objectWith("10", now).ObjectMeta))
	objects.notify(configMaps, compacted(objectWith("10", now)))
	g.Expect(writes.HasUnseen(namespace)).To(BeTrue())
	g.Expect(objects.ensure(t.Context(), configMaps)).To(Succeed())
	clock.SetTime(now.Add(OwnWriteTimeout + 1))
	g.Expect(objects.get(configMaps, namespace, "config")).To(BeNil(), "the object was deleted before it was observed")
	g.Expect(writes.HasUnseen(namespace)).To(BeFalse())
}

func TestRetainWatches(t *testing.T) {
	secrets := corev1.SchemeGroupVersion.WithKind("Secret")
	tests := map[string]struct {
		needed   bool
		unserved bool
		elapsed  time.Duration
		removed  []string
		want     bool
		notified []string
	}{
		"needed":                {needed: true, elapsed: 2 * WatchRetention},
		"used recently":         {elapsed: WatchRetention - 1, want: true},
		"unused":                {elapsed: WatchRetention, removed: []string{"Secret"}},
		"needed but not served": {needed: true, unserved: true, removed: []string{"Secret"}, notified: []string{"ns"}},
		"unused and not served": {unserved: true, removed: []string{"Secret"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Now()
			clock, informers := clocktesting.NewFakePassiveClock(now), &fakeCache{object: objectWith("10", now)}
			var notified []string
			objects := NewObjects(informers, nil, clock, func(n string) { notified = append(notified, n) })
			g.Expect(objects.ensure(t.Context(), secrets)).To(Succeed())
			clock.SetTime(now.Add(test.elapsed))
			g.Expect(objects.ensure(t.Context(), configMaps)).To(Succeed())
			g.Expect(objects.retain(t.Context(), map[schema.GroupVersionKind]bool{secrets: test.needed, configMaps: true},
				func(kind schema.GroupVersionKind) bool { return kind != secrets || !test.unserved })).To(Equal(test.want))
			g.Expect(informers.removed).To(Equal(test.removed))
			g.Expect(notified).To(Equal(test.notified), "deletions may not be observed")
			g.Expect(objects.watched).To(HaveLen(2 - len(test.removed)))
		})
	}
}

func TestCompact(t *testing.T) {
	g, full := NewWithT(t), objectWith("10", time.Now())
	want := &plan.Observed{
		UID: objectUID, ResourceVersion: "10", Template: "a", NamespaceUID: namespaceUID,
		Fields: plan.FieldsOf(full.ManagedFields, "a"),
	}
	g.Expect(compacted(full).observed()).To(Equal(want))
	g.Expect(toolscache.MetaNamespaceKeyFunc(compacted(full))).To(Equal("ns/config"))
	g.Expect(int(unsafe.Sizeof(cachedObject{}))).To(BeNumerically("<=", 64), "there can be hundreds of thousands")
	// An aggregated API server can return any metadata.
	g.Expect(compacted(&metav1.PartialObjectMetadata{}).observed()).To(Equal(&plan.Observed{}))
	full.UID, full.ResourceVersion, full.DeletionTimestamp = "x/10", "", ptr.To(metav1.Now())
	want.UID, want.ResourceVersion, want.IsTerminating = "x/10", "", true
	g.Expect(compacted(full).observed()).To(Equal(want))
	for len(full.ManagedFields) <= 64 {
		g.Expect(plan.IsCrowded(full.ManagedFields)).To(BeFalse())
		full.ManagedFields = append(full.ManagedFields, full.ManagedFields[0])
	}
	g.Expect(compacted(full).observed().IsCrowded).To(BeTrue())
	hard := corev1.ResourceList{"pods": resource.MustParse("1")}
	for name, test := range map[string]struct {
		spec, status corev1.ResourceList
		want         bool
	}{
		"counted": {hard, hard.DeepCopy(), true}, "not counted": {hard, nil, false}, "empty": {nil, nil, true},
		"outdated": {hard, corev1.ResourceList{"pods": resource.MustParse("2")}, false},
		"equal":    {corev1.ResourceList{"pods": resource.MustParse("1000m")}, hard, true},
	} {
		quota := &corev1.ResourceQuota{ObjectMeta: full.ObjectMeta}
		quota.Spec.Hard, quota.Status.Hard = test.spec, test.status
		g.Expect(compacted(quota).observed().IsCounted).To(Equal(test.want), name)
	}
}

func TestIsNewer(t *testing.T) {
	g := NewWithT(t)
	g.Expect(isNewer("10", "9")).To(BeTrue())
	g.Expect(isNewer("9", "10")).To(BeFalse())
	g.Expect(isNewer("9", "9")).To(BeFalse())
	g.Expect(isNewer("", "9")).To(BeFalse())
}
