// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Users in the recording.
const (
	manager     = "system:serviceaccount:nslifecycle-system:nslifecycle-controller-manager"
	alice       = "alice@corp.example.com"
	initializer = "initializer@corp.example.com"
)

// shop is the namespace in the recording.
const shop = "shop"

// load returns a recording of two API servers. alice creates a namespace, the initializer user writes
// to it and removes both initializers, alice writes, another controller adds a condition and finalizers,
// and the operator finalizes the namespace.
func load(g *WithT) Evidence {
	var evidence Evidence
	for _, log := range []string{"testdata/a.log", "testdata/b.log"} {
		events, err := ReadLog(log, 0)
		g.Expect(err).NotTo(HaveOccurred())
		evidence.Events = append(evidence.Events, events...)
	}
	content, err := os.ReadFile("testdata/changes.jsonl")
	g.Expect(err).NotTo(HaveOccurred())
	scanner := bufio.NewScanner(bytes.NewReader(content))
	for scanner.Scan() {
		var change Change
		g.Expect(json.Unmarshal(scanner.Bytes(), &change)).To(Succeed())
		evidence.Changes = append(evidence.Changes, change)
	}
	g.Expect(scanner.Err()).NotTo(HaveOccurred())
	return evidence
}

// request returns the only successful request with the verb for an object.
func (e *Evidence) request(g *WithT, verb, name string, matches ...func(*Event) bool) *Event {
	var found []*Event
	for i := range e.Events {
		event := &e.Events[i]
		if event.Verb == verb && (event.ObjectRef.Name == name || event.ResponseObject.Name == name) && event.Succeeded() &&
			!slices.ContainsFunc(matches, func(matches func(*Event) bool) bool { return !matches(event) }) {
			found = append(found, event)
		}
	}
	g.Expect(found).To(HaveLen(1), "%s %s", verb, name)
	return found[0]
}

// setsPending matches the request that results in a pending list.
func setsPending(list string) func(*Event) bool {
	return func(e *Event) bool {
		return e.User.Username == initializer && e.ResponseObject.Annotations[v1alpha1.AnnotationPendingInitializers] == list
	}
}

// changeVersion changes an object in the response of a request, and in the watch event with the same
// revision.
func (e *Evidence) changeVersion(request *Event, change func(*Object)) {
	change(&request.ResponseObject)
	for i := range e.Changes {
		if e.Changes[i].Object.ResourceVersion == request.ResponseObject.ResourceVersion {
			change(&e.Changes[i].Object)
		}
	}
}

// dropVersions removes the versions of the namespace with a pending list.
func (e *Evidence) dropVersions(list string) {
	matches := func(o Object) bool { return o.Annotations[v1alpha1.AnnotationPendingInitializers] == list }
	e.Changes = slices.DeleteFunc(e.Changes, func(c Change) bool { return matches(c.Object) })
	e.Events = slices.DeleteFunc(e.Events, func(event Event) bool { return matches(event.ResponseObject) })
}

// reportsRemaining matches the request in which the operator reports the remaining objects.
func reportsRemaining(e *Event) bool {
	return e.User.Username == manager && slices.ContainsFunc(e.ResponseObject.conditions(), func(c corev1.NamespaceCondition) bool {
		return c.Type == corev1.NamespaceContentRemaining && c.Status == corev1.ConditionTrue
	})
}

func TestCheck(t *testing.T) {
	remainingReport := func(e *Evidence, g *WithT) *Event { return e.request(g, "patch", shop, reportsRemaining) }
	for name, test := range map[string]struct {
		change func(*Evidence, *WithT)
		// required is what the namespace must have.
		required Requirements
		// managers are the managers, by default one.
		managers map[string][]corev1.FinalizerName
		// want is the violated invariant; empty if there is no violation.
		want Invariant
		// namespace is the name of another namespace than shop.
		namespace string
		// message is a part of the description.
		message string
	}{
		"the recording": {change: func(*Evidence, *WithT) {}},
		"without watches": {
			change: func(e *Evidence, _ *WithT) { e.Changes = nil },
		},

		"a user creates an object": {
			change: func(e *Evidence, g *WithT) { e.request(g, "create", "settings").User.Username = alice },
			want:   EarlyWrite, message: "create /api/v1/namespaces/shop/configmaps",
		},
		"a user deletes an object": {
			change: func(e *Evidence, g *WithT) { e.request(g, "delete", "temporary").User.Username = alice },
			want:   EarlyWrite, message: "b.log",
		},
		"a user deletes an object, without watches": {
			change: func(e *Evidence, g *WithT) {
				e.request(g, "delete", "temporary").User.Username = alice
				e.Changes = nil
			},
			want: EarlyWrite, message: "delete /api/v1/namespaces/shop/configmaps/temporary",
		},
		"a user deletes an object as a dry run": {
			change: func(e *Evidence, g *WithT) {
				request := e.request(g, "delete", "temporary")
				request.User.Username, request.RequestObject = alice, json.RawMessage(`{"dryRun":["All"]}`)
			},
		},
		"a user is rejected": {
			change: func(e *Evidence, g *WithT) {
				request := e.request(g, "create", "settings")
				request.User.Username, request.ResponseStatus.Code = alice, 403
			},
		},
		"a user impersonates an initializer": {
			change: func(e *Evidence, g *WithT) {
				request := e.request(g, "create", "settings")
				request.ImpersonatedUser, request.User.Username = &authenticationv1.UserInfo{Username: initializer}, alice
			},
		},
		"an initializer impersonates a user": {
			change: func(e *Evidence, g *WithT) {
				e.request(g, "create", "settings").ImpersonatedUser = &authenticationv1.UserInfo{Username: alice}
			},
			want: EarlyWrite, message: initializer + " as " + alice,
		},
		"a user gets the version of another write in response to an update without changes": {
			change: func(e *Evidence, g *WithT) {
				update := *e.request(g, "create", "settings")
				update.Verb, update.User.Username = "update", alice
				update.Completed.Time = update.Completed.Add(1)
				e.Events = append(e.Events, update)
			},
		},
		"a user updates a custom resource with the plural namespaces": {
			change: func(e *Evidence, g *WithT) {
				for _, name := range []string{"settings", "old"} {
					request := e.request(g, "create", name)
					request.ObjectRef.APIGroup, request.ObjectRef.Resource = "example.com", namespacesResource
					request.ResponseObject.UID = "1-2-3"
				}
				e.request(g, "create", "settings").ResponseObject.Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
				e.request(g, "create", "old").User.Username = alice
			},
		},
		"a user removes an initializer": {
			change: func(e *Evidence, g *WithT) {
				e.request(g, "patch", shop, setsPending("quota.example.com")).User.Username = alice
			},
			want: EarlyWrite, message: v1alpha1.AnnotationPendingInitializers,
		},

		"the operator deletes an object of a live namespace": {
			change: func(e *Evidence, g *WithT) { e.request(g, "delete", "old").User.Username = manager },
			want:   LiveObjectDeleted, message: `configmaps "old"`,
		},
		"the operator deletes an object of a live namespace, without watches": {
			change: func(e *Evidence, g *WithT) {
				e.request(g, "delete", "old").User.Username = manager
				e.Changes = nil
			},
			want: LiveObjectDeleted, message: `configmaps "old"`,
		},
		"the ServiceAccount of a template deletes an object": {
			change: func(e *Evidence, g *WithT) {
				request := e.request(g, "delete", "old")
				request.User.Username, request.ImpersonatedUser = manager, &authenticationv1.UserInfo{Username: "provisioner"}
			},
		},

		"a namespace is removed before an object": {
			change: func(e *Evidence, _ *WithT) {
				e.Changes = slices.DeleteFunc(e.Changes, func(c Change) bool { return c.Object.Name == "web" && c.IsDeleted })
			},
			want: OrphanedObject, message: `configmaps "web"`,
		},
		"an object is created after the namespace was removed": {
			change: func(e *Evidence, _ *WithT) {
				i := slices.IndexFunc(e.Changes, func(c Change) bool { return c.Object.Name == "web" })
				late := e.Changes[i]
				late.Object.Name, late.Object.UID, late.Object.ResourceVersion = "late", "1-2-3", "999999999"
				e.Changes = append(e.Changes, late)
			},
			want: OrphanedObject, message: `configmaps "late" was created after`,
		},
		"an object is created after the namespace was removed, before the observer started": {
			change: func(e *Evidence, _ *WithT) {
				for i := range e.Changes {
					if e.Changes[i].Object.Name == "web" {
						e.Changes[i].Object.Namespace = "removed"
					}
				}
			},
			want: OrphanedObject, namespace: "removed", message: "the namespace did not exist",
		},

		"the operator removes a label": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(remainingReport(e, g), func(o *Object) { delete(o.Labels, "team") })
			},
			want: ForeignStateChanged, message: "label team",
		},
		"the operator changes an annotation": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(remainingReport(e, g), func(o *Object) { o.Annotations["example.com/owner"] = "" })
			},
			want: ForeignStateChanged, message: "annotation example.com/owner",
		},
		"the operator removes a finalizer": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(remainingReport(e, g), func(o *Object) { o.Finalizers = nil })
			},
			want: ForeignStateChanged, message: "finalizer example.com/backup",
		},
		"the operator removes a namespace finalizer": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(remainingReport(e, g), func(o *Object) { o.Spec = json.RawMessage(`{"finalizers":["kubernetes"]}`) })
			},
			want: ForeignStateChanged, message: "namespace finalizer example.com/audit",
		},
		"the operator removes the namespace finalizer of another operator": {
			change:   func(*Evidence, *WithT) {},
			managers: map[string][]corev1.FinalizerName{manager: {"example.com/audit"}},
			want:     ForeignStateChanged, message: "namespace finalizer kubernetes",
		},
		"the operator removes a condition": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(remainingReport(e, g), func(o *Object) { o.Status = json.RawMessage(`{}`) })
			},
			want: ForeignStateChanged, message: "condition example.com/Ready",
		},
		"another controller removes a condition": {
			change: func(e *Evidence, g *WithT) {
				request := remainingReport(e, g)
				request.User.Username = alice
				e.changeVersion(request, func(o *Object) { o.Status = json.RawMessage(`{}`) })
			},
		},

		"a request removes two initializers": {
			change: func(e *Evidence, _ *WithT) { e.dropVersions("quota.example.com") },
			want:   InitializedEarly, message: "network.example.com, quota.example.com",
		},
		"the operator removes an initializer without a condition": {
			change: func(e *Evidence, g *WithT) {
				e.request(g, "patch", shop, setsPending("quota.example.com")).User.Username = manager
			},
			want: InitializedEarly, message: "the operator removed network.example.com",
		},
		"the operator skips an initializer": {
			change: func(e *Evidence, g *WithT) {
				request := e.request(g, "patch", shop, setsPending("quota.example.com"))
				request.User.Username = manager
				e.changeVersion(request, func(o *Object) {
					o.Status = json.RawMessage(`{"conditions":[{"type":"network.example.com/Initialized","status":"False","reason":"TimedOut"}]}`)
				})
			},
		},
		"the label is removed while an initializer is pending": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(e.request(g, "patch", shop, setsPending("quota.example.com")), func(o *Object) {
					delete(o.Labels, v1alpha1.LabelInitializing)
				})
			},
			want: InitializedEarly, message: "while quota.example.com was pending",
		},
		"the pending list is incomplete at the creation": {
			change: func(e *Evidence, g *WithT) {
				e.changeVersion(e.request(g, "create", shop), func(o *Object) {
					o.Annotations[v1alpha1.AnnotationPendingInitializers] = "quota.example.com"
				})
			},
			want: InitializedEarly, message: `with "quota.example.com" pending`,
		},
		"the namespace has what is required": {
			change: func(*Evidence, *WithT) {},
			required: Requirements{
				Initializers: []string{"network.example.com", "quota.example.com"}, Objects: []string{"configmaps/settings"},
			},
		},
		"the namespace is created without an initializer": {
			change:   func(*Evidence, *WithT) {},
			required: Requirements{Initializers: []string{"missing.example.com"}},
			want:     InitializedEarly, message: `without the initializer "missing.example.com"`,
		},
		"an object is created after the initialization": {
			change:   func(*Evidence, *WithT) {},
			required: Requirements{Objects: []string{"configmaps/web"}},
			want:     InitializedEarly, message: "while configmaps/web did not exist",
		},
		"an object is deleted before the initialization is completed": {
			change:   func(*Evidence, *WithT) {},
			required: Requirements{Objects: []string{"configmaps/temporary"}},
			want:     InitializedEarly, message: "while configmaps/temporary did not exist",
		},
		"the response to the operator is missing, and a user gets the same version later": {
			change: func(e *Evidence, g *WithT) {
				request := e.request(g, "patch", shop, setsPending("quota.example.com"))
				for _, change := range e.Changes {
					if change.Object.ResourceVersion == request.ResponseObject.ResourceVersion {
						request.Received.Time = change.Seen.Add(time.Millisecond)
						request.Completed.Time = request.Received.Add(time.Millisecond)
					}
				}
				request.User.Username = alice
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			evidence := load(g)
			test.change(&evidence, g)
			if test.managers == nil {
				test.managers = map[string][]corev1.FinalizerName{manager: {corev1.FinalizerKubernetes}}
			}
			violations := Check(evidence, Rules{
				Managers: test.managers, SystemNamespace: "nslifecycle-system",
				MayWrite: func(user authenticationv1.UserInfo, _ string, _ ...string) bool { return user.Username != alice },
				Required: func(map[string]string) Requirements { return test.required },
			})
			if test.want == "" {
				g.Expect(violations).To(BeEmpty())
				return
			}
			g.Expect(violations).To(HaveLen(1))
			g.Expect(violations[0].Invariant).To(Equal(test.want))
			g.Expect(violations[0].Namespace).To(Equal(cmp.Or(test.namespace, shop)))
			g.Expect(violations[0].String()).To(ContainSubstring(test.message))
		})
	}
}

func TestReadLog(t *testing.T) {
	line := func(id string) string {
		return lineStart + `,"auditID":"` + id + `","verb":"create","responseObject":{"kind":"Status"}}`
	}
	incomplete := line("incomplete")[:60]
	tests := []struct {
		name    string
		content []string
		offset  int
		want    []string
	}{
		{"a crash within a line", []string{line("1"), "\n", incomplete, line("2"), "\n"}, 0, []string{"1", "2"}},
		{"an incomplete last line", []string{line("1"), "\n", incomplete}, 0, []string{"1"}},
		{"an offset between lines", []string{line("1"), "\n", line("2"), "\n"}, len(line("1")) + 1, []string{"2"}},
		{"an offset within a line", []string{line("1"), "\n", line("2"), "\n"}, 20, []string{"2"}},
		{"an offset in an incomplete line", []string{incomplete, line("2"), "\n"}, 20, []string{"2"}},
		{"an offset at the end", []string{line("1"), "\n"}, len(line("1")) + 1, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "audit.log")
			g.Expect(os.WriteFile(path, []byte(strings.Join(test.content, "")), 0o600)).To(Succeed())
			events, err := ReadLog(path, int64(test.offset))
			g.Expect(err).NotTo(HaveOccurred())
			var ids []string
			for _, event := range events {
				ids = append(ids, event.AuditID)
			}
			g.Expect(ids).To(Equal(test.want))
		})
	}
}
