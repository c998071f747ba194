// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// recording contains every version of every namespace, and the requests of all users.
type recording struct{ *observer.Observer }

// record observes namespaces until the end of the spec.
func record(ctx context.Context) recording {
	GinkgoHelper()
	started, err := observer.Start(ctx, []observer.Server{{Config: cluster.Admin.Config, Log: string(cluster.AuditLog)}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		// The specs check the evidence themselves.
		_, err := started.Stop(ctx, observer.Rules{
			MayWrite: func(authenticationv1.UserInfo, string, ...string) bool { return true },
		})
		Expect(err).NotTo(HaveOccurred())
	})
	return recording{started}
}

// versions returns all versions of namespaces by UID, and all writes.
func (r recording) versions(ctx context.Context) (map[types.UID][]observer.Change, []observer.Event) {
	GinkgoHelper()
	evidence, err := r.Collect(ctx)
	Expect(err).NotTo(HaveOccurred())
	versions := map[types.UID][]observer.Change{}
	for _, change := range evidence.Changes {
		if !change.IsListed && !change.IsDeleted {
			versions[change.Object.UID] = append(versions[change.Object.UID], change)
		}
	}
	return versions, slices.DeleteFunc(evidence.Events, func(e observer.Event) bool { return e.IsDryRun() })
}

// conditions returns all conditions that any version of a namespace has.
func (r recording) conditions(ctx context.Context, uid types.UID) []string {
	GinkgoHelper()
	var all []string
	versions, _ := r.versions(ctx)
	for _, version := range versions[uid] {
		var status corev1.NamespaceStatus
		Expect(json.Unmarshal(version.Object.Status, &status)).To(Succeed())
		for _, condition := range status.Conditions {
			all = append(all, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
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
func (r recording) combine(ctx context.Context) *history {
	GinkgoHelper()
	versions, writes := r.versions(ctx)
	t := &history{removals: map[types.UID]map[string]removal{}, names: map[types.UID]string{}, writes: writes}
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
		t.names[uid], t.removals[uid] = all[0].Object.Name, map[string]removal{}
		for i := 1; i < len(all); i++ {
			for _, name := range missing(pendingOf(all[i-1]), pendingOf(all[i])) {
				removed := removal{at: all[i].Seen}
				candidates := makers[all[i].Object.ResourceVersion]
				if len(candidates) == 0 {
					candidates = unanswered[all[i].Object.Name]
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

func pendingOf(change observer.Change) string {
	return change.Object.Annotations[v1alpha1.AnnotationPendingInitializers]
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
