// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// success is an attempt that succeeded.
type success struct {
	permission
	// place is where the object is, or the state of the Namespace.
	place string
	// part is what was changed or created; empty for other verbs.
	part string
	// path is that of the object, or of the collection.
	path string
}

// attacker sends requests with a stolen token.
type attacker struct {
	*fixtures
	permissions []permission
	// isBrief restricts the attempts to the fixtures.
	isBrief   bool
	client    *http.Client
	admin     *http.Client
	successes []success
}

// config returns the configuration of a client with a token of the ServiceAccount.
func (i identity) config(ctx context.Context) *rest.Config {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, i.namespace, i.name)
	Expect(err).NotTo(HaveOccurred())
	return controlplane.Unlimited(config)
}

// newAttacker returns an attacker with a token of a ServiceAccount.
func newAttacker(ctx context.Context, account identity, f *fixtures) *attacker {
	GinkgoHelper()
	client, err := rest.HTTPClientFor(account.config(ctx))
	Expect(err).NotTo(HaveOccurred())
	a := &attacker{fixtures: f, client: client, admin: adminClient(),
		permissions: permissionsOf(ctx, account, f.types, slices.Collect(maps.Values(f.namespaces))...)}
	for _, one := range a.permissions {
		// The managers of the suite do not create the Leases for leader election.
		if one.name != "" && one.namespace != "" && f.objects[one.resource] != nil {
			named := f.object(one.resource, one.namespace)
			named.SetName(one.name)
			mustCreate(ctx, f.types[one.resource].path(one.namespace), named)
		}
	}
	return a
}

// attempt is a request that uses a permission.
type attempt struct {
	success
	method, query, contentType string
	body                       []byte
	// change returns the body for the current object, instead of body.
	change func(current map[string]any) []byte
}

// tryContent uses all permissions, except those to change and delete Namespaces.
func (a *attacker) tryContent(ctx context.Context) {
	GinkgoHelper()
	for _, verb := range apiVerbs {
		for _, one := range a.permissions {
			if one.verb == verb && (one.resource != "namespaces" || slices.Index(apiVerbs, verb) <= createIndex) {
				a.use(ctx, one)
			}
		}
	}
	for _, one := range a.permissions {
		if one.verb == "impersonate" {
			a.tryImpersonation(ctx, one)
		}
	}
}

// tryImpersonation impersonates the ServiceAccount that a permission names, and one that it does not name.
func (a *attacker) tryImpersonation(ctx context.Context, one permission) {
	GinkgoHelper()
	Expect(one.fullResource()).To(Equal("serviceaccounts"))
	path := "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	as := func(name string) int {
		return sendAs(ctx, a.client, identity{systemNamespace, name}.username(), http.MethodPost, path, "", body).code
	}
	Expect(as("other")).To(Equal(http.StatusForbidden))
	if as(one.name) == http.StatusCreated {
		a.successes = append(a.successes, success{permission: one, place: clusterScope, path: path})
	}
}

// tryNamespaces uses the permissions to change and delete Namespaces on Namespaces in all states. No manager may run,
// because it deletes failed Namespaces.
func (a *attacker) tryNamespaces(ctx context.Context) {
	GinkgoHelper()
	names := maps.Clone(permanentNamespaces)
	for _, verb := range apiVerbs[createIndex+1:] {
		for _, one := range a.permissions {
			if one.verb != verb || one.resource != "namespaces" {
				continue
			}
			for _, state := range namespaceStates {
				a.tryNamespace(ctx, one, state, names)
			}
		}
	}
}

// tryNamespace uses a permission on Namespaces in one state. After a success, it continues with another Namespace.
func (a *attacker) tryNamespace(ctx context.Context, one permission, state string, names map[string]string) {
	GinkgoHelper()
	served, isPermanent := a.types[one.resource], permanentNamespaces[state] != ""
	changes := []change{{}}
	if one.verb != "delete" {
		changes = changesOf(one)
	} else if state == terminating {
		return // Another deletion has no effect.
	}
	for _, change := range changes {
		if names[state] == "" {
			names[state] = createNamespace(ctx, state)
		}
		before := get(ctx, served.path("", names[state]))
		next := success{permission: one, place: state, path: served.path("", names[state], one.subresource)}
		succeeded := false
		if one.verb == "delete" {
			succeeded = a.try(ctx, attempt{success: next, method: http.MethodDelete})
		} else {
			succeeded = a.tryChange(ctx, next, change)
		}
		if succeeded && isPermanent {
			restore(ctx, served, before)
		} else if succeeded {
			names[state] = ""
		}
	}
}

// createIndex is the index of the last verb that does not change an existing object.
var createIndex = slices.Index(apiVerbs, "create")

// use tries one permission in all places.
func (a *attacker) use(ctx context.Context, one permission) {
	GinkgoHelper()
	served, ok := a.types[one.resource]
	if !ok {
		return // The API server does not serve the type, so there are no objects.
	}
	if !served.Namespaced {
		a.useIn(ctx, one, served, clusterScope)
		return
	}
	for _, place := range placesWithContent {
		if one.namespace == "" || one.namespace == a.namespaces[place] {
			a.useIn(ctx, one, served, place)
		}
	}
}

// useIn tries one permission in one place: on the collection, or on the fixture and the objects of the operator.
func (a *attacker) useIn(ctx context.Context, one permission, served resource, place string) {
	GinkgoHelper()
	namespace := a.namespaces[place]
	next := success{permission: one, place: place, path: served.path(namespace)}
	switch one.verb {
	case "list", "watch":
		query := map[string]string{"list": "?", "watch": "?watch=true&timeoutSeconds=1&"}[one.verb]
		if one.name != "" {
			query += "fieldSelector=metadata.name%3D" + one.name
		}
		a.try(ctx, attempt{success: next, method: http.MethodGet, query: query})
		return
	case "create":
		a.tryCreate(ctx, next, served, namespace)
		return
	case "deletecollection":
		before := list(ctx, served.path(namespace))
		if a.try(ctx, attempt{success: next, method: http.MethodDelete}) {
			a.restoreAll(ctx, served, before)
		}
		return
	}
	for _, object := range a.targets(ctx, one, served, place) {
		next.path = served.path(namespace, object.GetName(), one.subresource)
		switch one.verb {
		case "get":
			a.try(ctx, attempt{success: next, method: http.MethodGet})
		case "delete":
			if a.try(ctx, attempt{success: next, method: http.MethodDelete}) {
				a.restoreAll(ctx, served, []unstructured.Unstructured{object})
			}
		case "update", "patch":
			for _, change := range changesOf(one) {
				if a.tryChange(ctx, next, change) {
					a.restoreAll(ctx, served, []unstructured.Unstructured{object})
				}
			}
		}
	}
}

// targets returns the object that a permission names, or the fixture and the objects of the operator.
func (a *attacker) targets(ctx context.Context, one permission, served resource, place string) []unstructured.Unstructured {
	GinkgoHelper()
	all := list(ctx, served.path(a.namespaces[place]))
	return slices.DeleteFunc(all, func(object unstructured.Unstructured) bool {
		if one.name != "" {
			return object.GetName() != one.name
		}
		isOperators := !a.isBrief && place == systemNamespace || !a.isBrief && object.GetLabels()["app.kubernetes.io/name"] == "nslifecycle" ||
			strings.HasSuffix(served.version.Group, "nslifecycle.dev")
		return !isOperators && (a.objects[one.resource] == nil || object.GetName() != a.objects[one.resource].GetName())
	})
}

// tryCreate creates a copy of the fixture, and one with each change.
func (a *attacker) tryCreate(ctx context.Context, next success, served resource, namespace string) {
	GinkgoHelper()
	var object *unstructured.Unstructured
	if a.objects[next.resource] != nil {
		object = a.object(next.resource, namespace)
		object.SetFinalizers(nil)
	} else {
		existing := list(ctx, served.path(namespace))
		Expect(existing).NotTo(BeEmpty(), "add a fixture for %s", next.resource)
		object = forCreation(&existing[0])
	}
	if next.name != "" {
		a.tryApply(ctx, next, served, namespace)
		return
	}
	isStored := served.serves("get")
	if !isStored {
		object.SetName("")
		a.try(ctx, attempt{success: next, method: http.MethodPost, body: mustEncode(object.Object)})
		return
	}
	for _, one := range append([]change{set("", "", "metadata", "resourceVersion")}, changesOf(next.permission)...) {
		copied := object.DeepCopy()
		copied.SetName(framework.Unique(fixture + "-copy"))
		one.apply(copied.Object)
		next.part = one.part
		next.path = served.path(namespace, copied.GetName())
		posted := attempt{success: next, method: http.MethodPost, body: mustEncode(copied.Object)}
		if a.tryAt(ctx, served.path(namespace), posted) {
			mustDelete(ctx, next.path)
		}
	}
}

// tryApply creates the object that the permission names with another content, after the administrator has deleted it.
func (a *attacker) tryApply(ctx context.Context, next success, served resource, namespace string) {
	GinkgoHelper()
	path := served.path(namespace, next.name)
	before := get(ctx, path)
	if before == nil {
		return
	}
	applied := forCreation(before)
	for _, change := range changesOf(next.permission) {
		changed := applied.DeepCopy()
		change.apply(changed.Object)
		mustDelete(ctx, path)
		next.part, next.path = change.part, path
		a.try(ctx, attempt{success: next, method: http.MethodPatch, query: "?fieldManager=stolen-token&force=true",
			contentType: string(types.ApplyYAMLPatchType), body: mustEncode(changed.Object)})
		a.restoreAll(ctx, served, []unstructured.Unstructured{*before})
	}
}

// tryChange updates or patches an object, and reports whether the object has changed.
func (a *attacker) tryChange(ctx context.Context, next success, change change) bool {
	GinkgoHelper()
	next.part = change.part
	const query = "?fieldManager=" + nsobject.FieldOwner
	if next.verb == "update" {
		return a.try(ctx, attempt{success: next, method: http.MethodPut, query: query, change: func(current map[string]any) []byte {
			change.apply(current)
			return mustEncode(current)
		}})
	}
	return a.try(ctx, attempt{success: next, method: http.MethodPatch, query: query, contentType: string(types.MergePatchType),
		change: func(current map[string]any) []byte {
			before := mustEncode(current)
			change.apply(current)
			patch, err := jsonpatch.CreateMergePatch(before, mustEncode(current))
			Expect(err).NotTo(HaveOccurred())
			return patch
		}})
}

// try sends a request to the path of the success, and records the success.
func (a *attacker) try(ctx context.Context, one attempt) bool {
	GinkgoHelper()
	return a.tryAt(ctx, one.path, one)
}

// tryAt is like try with another path.
func (a *attacker) tryAt(ctx context.Context, path string, one attempt) bool {
	GinkgoHelper()
	succeeded := false
	// A manager can change the object between the read and the write.
	Eventually(func(g Gomega) {
		var before *unstructured.Unstructured
		objectPath := strings.TrimSuffix(path, "/"+one.subresource)
		body := one.body
		if one.change != nil {
			if before = get(ctx, objectPath); before == nil {
				return // A manager has deleted it.
			}
			body = one.change(before.DeepCopy().Object)
		}
		answer := sendAs(ctx, a.client, "", one.method, path+one.query, one.contentType, body)
		GinkgoWriter.Printf("%s %s%s (%s): %d %.300s\n", one.method, path, one.query, one.part, answer.code, answer.text)
		g.Expect(answer.code).NotTo(Equal(http.StatusConflict), answer.text)
		switch {
		case answer.code < http.StatusBadRequest:
			succeeded = before == nil || !isSame(before, answer.object()) ||
				!hasPlanted(before) && hasPlanted(answer.object())
		case !answer.isDenied():
			separator := "?"
			if one.query != "" {
				separator = one.query + "&"
			}
			control := sendAs(ctx, a.admin, "", one.method, path+separator+"dryRun=All", one.contentType, body)
			g.Expect(control.code).To(BeNumerically(">=", http.StatusBadRequest),
				"%s %s: the response to the attacker is unclear, since an administrator may do it: %s", one.method, path, answer.text)
		}
	}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
	if succeeded {
		a.successes = append(a.successes, one.success)
	}
	return succeeded
}
