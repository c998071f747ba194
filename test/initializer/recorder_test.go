// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/observer"
)

// version is the state of the initialization in one version of a namespace.
type version struct {
	name, resourceVersion, pending string
	conditions                     []string
	// seen is the time when the watch returned the version.
	seen time.Time
}

// recording contains every version of every namespace, by UID.
type recording struct {
	lock     sync.Mutex
	versions map[types.UID][]version
}

// record watches namespaces and stores their versions until the end of the spec.
func record(ctx context.Context) *recording {
	GinkgoHelper()
	var list corev1.NamespaceList
	Expect(admin.List(ctx, &list)).To(Succeed())
	namespaces := newClientset(plane.Admin).CoreV1().Namespaces()
	// The API server closes slow watches, so the watch resumes from the last resourceVersion.
	watch, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: namespaces.Watch,
	})
	Expect(err).NotTo(HaveOccurred())
	r := &recording{versions: map[types.UID][]version{}}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watch.ResultChan() {
			namespace, isNamespace := event.Object.(*corev1.Namespace)
			if !isNamespace {
				continue
			}
			var conditions []string
			for _, condition := range namespace.Status.Conditions {
				conditions = append(conditions, fmt.Sprintf("%s=%s %s: %s",
					condition.Type, condition.Status, condition.Reason, condition.Message))
			}
			r.lock.Lock()
			r.versions[namespace.UID] = append(r.versions[namespace.UID], version{
				name: namespace.Name, resourceVersion: namespace.ResourceVersion,
				pending: pendingOf(namespace), conditions: conditions, seen: time.Now(),
			})
			r.lock.Unlock()
		}
	})
	DeferCleanup(func() {
		watch.Stop()
		done.Wait()
	})
	return r
}

// upToNow returns all versions recorded so far.
func (r *recording) upToNow(ctx context.Context) map[types.UID][]version {
	GinkgoHelper()
	// The watch returns versions in order. When it returns this version, it has returned all earlier
	// ones.
	mark := &corev1.Namespace{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: accounts}, mark)).To(Succeed())
	before := mark.DeepCopy()
	mark.Labels["recorded"] = unique("mark")
	Expect(admin.Patch(ctx, mark, client.MergeFrom(before))).To(Succeed())
	Eventually(func() bool {
		r.lock.Lock()
		defer r.lock.Unlock()
		return slices.ContainsFunc(r.versions[mark.UID], func(v version) bool { return v.resourceVersion == mark.ResourceVersion })
	}).WithContext(ctx).Should(BeTrue())
	r.lock.Lock()
	defer r.lock.Unlock()
	versions := map[types.UID][]version{}
	for uid, all := range r.versions {
		if uid != mark.UID {
			versions[uid] = slices.Clone(all)
		}
	}
	return versions
}

// conditions returns all conditions that any version of a namespace has.
func (r *recording) conditions(ctx context.Context, uid types.UID) []string {
	GinkgoHelper()
	var all []string
	for _, version := range r.upToNow(ctx)[uid] {
		all = append(all, version.conditions...)
	}
	return all
}

// isUnanswered reports whether the client disconnected before it received a response, for example
// because it was killed. The API server might still have executed the write.
func isUnanswered(write *observer.Event) bool {
	return write.ResponseStatus.Code == 0 || write.ResponseStatus.Code >= 500 ||
		write.Succeeded() && write.ResponseObject.ResourceVersion == ""
}

// removal records which user removed a name from the list of a namespace, and when.
type removal struct {
	users []string
	at    time.Time
}

// history combines the two records.
type history struct {
	// removals contains the removals by namespace UID and initializer name.
	removals map[types.UID]map[string]removal
	names    map[types.UID]string
	writes   []observer.Event
}

// combine determines which user removed which name. The response to a write contains the
// resourceVersion that the write created. A version without such a response might be from any
// request whose client disconnected.
func (r *recording) combine(ctx context.Context) *history {
	GinkgoHelper()
	versions := r.upToNow(ctx)
	t := &history{removals: map[types.UID]map[string]removal{}, names: map[types.UID]string{}, writes: auditLog.Read()}
	makers, unanswered := map[string][]observer.Event{}, map[string][]observer.Event{}
	for _, write := range t.writes {
		version := write.ResponseObject.ResourceVersion
		switch {
		case write.ObjectRef.Resource != "namespaces":
		case isUnanswered(&write):
			unanswered[write.ObjectRef.Name] = append(unanswered[write.ObjectRef.Name], write)
		case write.Succeeded():
			makers[version] = append(makers[version], write)
		}
	}
	for uid, all := range versions {
		t.names[uid], t.removals[uid] = all[0].name, map[string]removal{}
		for i := 1; i < len(all); i++ {
			for _, name := range missing(all[i-1].pending, all[i].pending) {
				removed := removal{at: all[i].seen}
				candidates := makers[all[i].resourceVersion]
				if len(candidates) == 0 {
					candidates = unanswered[all[i].name]
				} else {
					removed.at = candidates[0].Completed.Time
				}
				for _, write := range candidates {
					removed.users = append(removed.users, write.User.Username)
				}
				t.removals[uid][name] = removed
			}
		}
	}
	return t
}

// missing returns the names that before contains and after does not.
func missing(before, after string) []string {
	left := strings.Split(after, ",")
	return slices.DeleteFunc(strings.Split(before, ","), func(name string) bool {
		return name == "" || slices.Contains(left, name)
	})
}

// expectOwners expects that, for each of the namespaces, every name was removed by its owner.
// owners maps names to users.
func (t *history) expectOwners(owners map[string]string, namespaces ...string) {
	GinkgoHelper()
	count := 0
	for uid, removals := range t.removals {
		if !slices.Contains(namespaces, t.names[uid]) {
			continue
		}
		count++
		for name, user := range owners {
			Expect(removals).To(HaveKey(name), "namespace %s", t.names[uid])
			// Requests that change nothing return the same version, so a removal can have several users.
			Expect(removals[name].users).To(ContainElement(user), "namespace %s, initializer %s", t.names[uid], name)
		}
	}
	Expect(count).To(Equal(len(namespaces)), "number of observed namespaces")
}

// expectNothingLate expects that no initializer writes to a namespace after its name is removed
// from the list, and returns the number of writes.
func (t *history) expectNothingLate(owners map[string]string, namespaces ...string) int {
	GinkgoHelper()
	entries := map[string]string{}
	for name, user := range owners {
		entries[user] = name
	}
	uids := map[string]types.UID{}
	for uid, name := range t.names {
		uids[name] = uid
	}
	count := 0
	for _, write := range t.writes {
		entry, isOurs := entries[write.User.Username]
		if !isOurs || write.ObjectRef.Resource == "namespaces" || !slices.Contains(namespaces, write.ObjectRef.Namespace) {
			continue
		}
		count++
		removed := t.removals[uids[write.ObjectRef.Namespace]][entry]
		Expect(write.Received.Time).To(BeTemporally("<", removed.at),
			"%s wrote to namespace %s after its name was removed from the list", write.User.Username, write.ObjectRef.Namespace)
	}
	return count
}
