// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type resettableMapper struct{ *meta.DefaultRESTMapper }

func (resettableMapper) Reset() {}

// aggregatedVersion is a group version that an aggregated API server serves.
var aggregatedVersion = schema.GroupVersion{Group: "aggregated.example.com", Version: "v1"}

var (
	configMaps   = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	quotas       = corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	roleBindings = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	things       = aggregatedVersion.WithKind("Thing")
	now          = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

// newWriter returns a Writer that sends its requests to handle.
func newWriter(t *testing.T, handle http.HandlerFunc) *Writer {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	discoverer, err := discovery.NewDiscoveryClientForConfigAndClient(config, server.Client())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	for _, kind := range []schema.GroupVersionKind{configMaps, quotas, roleBindings, things} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return &Writer{
		Config: config, SystemNamespace: "system",
		Kinds: &observe.Kinds{
			Mapper: resettableMapper{mapper}, Discovery: discoverer, Clock: clocktesting.NewFakePassiveClock(now),
		},
		DryRuns: dryrun.New(func(_ context.Context, groupVersion schema.GroupVersion) (bool, error) {
			return groupVersion == aggregatedVersion, nil
		}),
	}
}

// apiServer is an API server that stores nothing. It records requests, and answers them by method and path.
type apiServer struct {
	answers map[string]answer
	sent    []string
}

type answer struct {
	code int
	body any
}

func (s *apiServer) handle(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := r.Method + " " + r.URL.Path
	query := r.URL.Query()
	words := []string{text, r.Header.Get("Impersonate-User")}
	for _, key := range []string{"fieldManager", "force", "dryRun"} {
		if query.Has(key) {
			words = append(words, key+"="+query.Get(key))
		}
	}
	if r.Method == http.MethodDelete || strings.Contains(r.Header.Get("Content-Type"), "merge-patch") {
		words = append(words, string(body))
	}
	s.sent = append(s.sent, strings.Join(words, " "))
	found, ok := s.answers[text]
	if !ok {
		object := &unstructured.Unstructured{}
		_ = json.Unmarshal(body, &object.Object)
		if object.Object == nil || object.GetKind() == "" {
			object = configMap("one")
		}
		object.SetUID("uid")
		object.SetResourceVersion("5")
		found = answer{http.StatusCreated, object}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(found.code)
	_ = json.NewEncoder(w).Encode(found.body)
}

func configMap(name string) *unstructured.Unstructured {
	return objectOf(configMaps, name)
}

func objectOf(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	object.SetNamespace("ns")
	return object
}

// stores records the calls of an Executor.
type stores struct {
	wrote     []string
	permitted []string
	err       error
}

func (s *stores) Wrote(_ *corev1.Namespace, key template.ObjectKey, response *plan.Observed) {
	s.wrote = append(s.wrote, key.Name+" "+response.ResourceVersion)
}

func (s *stores) Permit(
	_ context.Context, tmpl *v1alpha1.NamespaceTemplate, verb string, of schema.GroupResource, namespace, name string,
) error {
	s.permitted = append(s.permitted, strings.Join([]string{tmpl.Name, verb, of.String(), namespace, name}, " "))
	return s.err
}

func (s *stores) Check(context.Context, *corev1.Namespace, *unstructured.Unstructured) error {
	return s.err
}

func team() *v1alpha1.NamespaceTemplate {
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "team"}}
	tmpl.Spec.ServiceAccountName = "account"
	return tmpl
}

func namespaceOf(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", UID: "ns-uid", ResourceVersion: "3", Annotations: annotations,
	}}
}

// executor returns an Executor with the objects in the API server.
func (s *apiServer) executor(t *testing.T, known *stores, funcs interceptor.Funcs, objects ...client.Object) *Executor {
	index := func(object client.Object) []string { return []string{object.GetName()} }
	builder := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(funcs)
	for _, kind := range []client.Object{&corev1.ConfigMap{}, &corev1.ResourceQuota{}, &corev1.ServiceAccount{}} {
		builder.WithIndex(kind, metav1.ObjectNameField, index)
	}
	writer := newWriter(t, s.handle)
	return &Executor{Writer: writer, Permissions: known, Grants: known, Writes: known, Live: builder.Build(), SystemNamespace: "system"}
}

// The executor decides nothing: it sends the requests of a plan as the ServiceAccount of the template.
func TestExecute(t *testing.T) {
	g, server, known := NewWithT(t), &apiServer{}, &stores{}
	owned := configMap("old")
	owned.SetUID("old-uid")
	owned.SetLabels(map[string]string{v1alpha1.LabelManagedByTemplate: "team"})
	owned.SetAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: "ns-uid"})
	namespace := namespaceOf(nil)
	label := plan.NewMetadata(template.KindLabel, "zone", "a", namespace)
	server.answers = map[string]answer{
		"PATCH /api/v1/namespaces/ns": {http.StatusOK, metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: "ns", ResourceVersion: "4", Labels: map[string]string{"zone": "a"}},
		}},
		"DELETE /api/v1/namespaces/ns/configmaps/old": {http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}}},
	}
	live := namespace.DeepCopy()
	live.ResourceVersion, live.Labels = "", map[string]string{"zone": "a"}
	executor := server.executor(t, known, interceptor.Funcs{}, live, team(), owned)
	other := team()
	other.Name, other.Spec.ServiceAccountName = "other", "other-account"
	second := plan.NewMetadata(template.KindAnnotation, "owner", "b", namespace)
	decided := plan.Compute(plan.Snapshot{
		Namespace: namespace, Now: now, FullPassInterval: time.Hour, Templates: []v1alpha1.NamespaceTemplate{*team(), *other},
		State: template.Record{"team": {Objects: []template.ObjectState{{Kind: configMaps.GroupKind(), Name: "old", UID: "old-uid"}}}},
		Applicable: []plan.TemplateSnapshot{
			{Template: other, Objects: []plan.ObjectSnapshot{second}, Choice: plan.Choice{Revision: "b"}},
			{
				Template: team(), Objects: []plan.ObjectSnapshot{label, {Name: "one", Manifest: configMap("one")}},
				Choice: plan.Choice{Revision: "b", Current: "b"},
			},
		},
	}, plan.Memory{})
	results, err := executor.Execute(t.Context(), decided)
	g.Expect(err).NotTo(HaveOccurred())
	const account, manager = "system:serviceaccount:system:account", "fieldManager=nslifecycle-template:team"
	g.Expect(server.sent).To(HaveExactElements(
		And(HavePrefix("PATCH /api/v1/namespaces/ns system:serviceaccount:system:other-account fieldManager=nslifecycle-template:other"), ContainSubstring(`"resourceVersion":"3"`), ContainSubstring(`"owner":"b"`)),
		And(HavePrefix("PATCH /api/v1/namespaces/ns "+account+" "+manager), ContainSubstring(`"resourceVersion":"4"`), ContainSubstring(`"uid":"ns-uid"`), ContainSubstring(`"zone":"a"`)),
		Equal("PATCH /api/v1/namespaces/ns/configmaps/one "+account+" "+manager+" force=false"),
		And(HavePrefix("DELETE /api/v1/namespaces/ns/configmaps/old "+account), ContainSubstring(`"uid":"old-uid"`), ContainSubstring(`"resourceVersion":"999"`)),
	))
	for i, result := range results {
		g.Expect(result.Err).NotTo(HaveOccurred(), "%d", i)
	}
	g.Expect(known.wrote).To(Equal([]string{"one 5"}))
	g.Expect(known.permitted).To(Equal([]string{"team delete configmaps ns old"}))
	outcome, _ := plan.Conclude(decided, results)
	g.Expect(outcome.State["team"].Revision).To(Equal("b"))
	g.Expect(outcome.Namespace.ResourceVersion).To(Equal("4"))
}

// What depends on an operation that has failed is skipped, and nothing is sent after the deletion of the Namespace has
// begun.
func TestExecuteStops(t *testing.T) {
	terminating := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}
	forbidden := terminating
	forbidden.Details = nil
	for name, test := range map[string]struct {
		status  metav1.Status
		results int
		stops   bool
	}{
		"the namespace is being deleted": {terminating, 0, true},
		"forbidden":                      {forbidden, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &apiServer{answers: map[string]answer{"PATCH /api/v1/namespaces/ns/configmaps/one": {http.StatusForbidden, test.status}}}
			decided := plan.Compute(plan.Snapshot{
				Namespace: namespaceOf(nil), Now: now, FullPassInterval: time.Hour,
				State:      template.Record{"team": {Objects: []template.ObjectState{{Kind: configMaps.GroupKind(), Name: "old", UID: "old-uid"}}}},
				Applicable: []plan.TemplateSnapshot{{Template: team(), Objects: []plan.ObjectSnapshot{{Name: "one", Manifest: configMap("one")}}, Choice: plan.Choice{Revision: "b"}}},
			}, plan.Memory{})
			results, err := server.executor(t, &stores{}, interceptor.Funcs{}).Execute(t.Context(), decided)
			g.Expect(err != nil).To(Equal(test.stops))
			g.Expect(results).To(HaveLen(test.results))
			g.Expect(server.sent).To(HaveLen(1))
			if !test.stops {
				g.Expect(results[1].Err).To(Equal(plan.ErrSkipped))
				g.Expect(results[2].Err).To(Equal(plan.ErrSkipped))
			}
		})
	}
}

// Each verb, its requests and its errors.
func TestVerbs(t *testing.T) {
	notFound := answer{http.StatusNotFound, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotFound,
		Reason: metav1.StatusReasonNotFound,
	}}
	failed := answer{http.StatusInternalServerError, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Reason: metav1.StatusReasonInternalError,
	}}
	deleted := answer{http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}}}
	accepted := answer{http.StatusAccepted, deleted.body}
	outage := errors.New("outage")
	failList := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return outage }}
	failGet := func(of client.Object) interceptor.Funcs {
		return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if fmt.Sprintf("%T", object) == fmt.Sprintf("%T", of) {
				return outage
			}
			return c.Get(ctx, key, object, opts...)
		}}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	counted := quota.DeepCopy()
	counted.Status.Hard = counted.Spec.Hard
	live := namespaceOf(nil)
	live.ResourceVersion = ""
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "account"}}
	const path = "/api/v1/namespaces/ns/configmaps/one"
	one := plan.Request{Kind: configMaps, Name: "one", Manifest: configMap("one"), FieldManager: "m"}
	with := func(verb plan.Verb, change func(*plan.Request)) plan.Request {
		changed := one
		changed.Verb = verb
		if change != nil {
			change(&changed)
		}
		return changed
	}
	unknownKind := func(r *plan.Request) { r.Kind = configMaps.GroupVersion().WithKind("Unknown") }
	aggregated := func(r *plan.Request) { r.Kind, r.Manifest, r.IsDryRun = things, objectOf(things, "one"), true }
	removal := func(r *plan.Request) { r.Kind, r.IsRemoval = configMaps.GroupKind().WithVersion(""), true }
	tests := map[string]struct {
		request plan.Request
		answers map[string]answer
		funcs   interceptor.Funcs
		objects []client.Object
		stores  stores
		sent    []OmegaMatcher
		err     OmegaMatcher
		want    OmegaMatcher
	}{
		"Find":                        {request: with(plan.Find, nil), objects: []client.Object{configMap("one")}, want: HaveField("Metadata.Name", "one")},
		"Find none":                   {request: with(plan.Find, nil), objects: []client.Object{configMap("two")}, want: HaveField("Metadata", BeNil())},
		"Find fails":                  {request: with(plan.Find, nil), funcs: failList, err: MatchError(outage)},
		"Find for a removal":          {request: with(plan.Find, removal), objects: []client.Object{configMap("one")}, want: HaveField("Metadata.Name", "one")},
		"Find without permission":     {request: with(plan.Find, removal), stores: stores{err: outage}, err: MatchError(outage)},
		"Find an unserved kind":       {request: with(plan.Find, func(r *plan.Request) { unknownKind(r); r.IsRemoval = true }), err: MatchError(ContainSubstring("does not serve"))},
		"Apply":                       {request: with(plan.Apply, nil), sent: []OmegaMatcher{HaveSuffix(" force=false")}, want: And(HaveField("IsCreated", true), HaveField("Metadata.UID", BeEquivalentTo("uid")), HaveField("Object.Object", HaveKey("kind")))},
		"Apply forced":                {request: with(plan.Apply, func(r *plan.Request) { r.IsForced = true }), sent: []OmegaMatcher{HaveSuffix(" force=true")}, want: HaveField("IsCreated", true)},
		"Apply as a dry run":          {request: with(plan.Apply, func(r *plan.Request) { r.IsDryRun = true }), sent: []OmegaMatcher{HaveSuffix(" dryRun=All")}, want: HaveField("IsCreated", true)},
		"Apply to another version":    {request: with(plan.Apply, nil), answers: map[string]answer{"PATCH " + path: {http.StatusOK, configMap("one")}}, sent: []OmegaMatcher{HavePrefix("PATCH")}, want: HaveField("IsCreated", false)},
		"Apply fails":                 {request: with(plan.Apply, nil), answers: map[string]answer{"PATCH " + path: failed}, sent: []OmegaMatcher{HavePrefix("PATCH")}, err: HaveOccurred()},
		"Apply, any body":             {request: with(plan.Apply, nil), answers: map[string]answer{"PATCH " + path: {http.StatusOK, "text"}}, sent: []OmegaMatcher{HavePrefix("PATCH")}, err: MatchError(ContainSubstring("failed to decode"))},
		"Apply an unserved kind":      {request: with(plan.Apply, unknownKind), err: MatchError(ContainSubstring("does not serve"))},
		"Apply an unencodable object": {request: with(plan.Apply, func(r *plan.Request) { r.Manifest = &unstructured.Unstructured{Object: map[string]any{"a": func() {}}} }), err: MatchError(ContainSubstring("failed to encode"))},
		"Apply to a group":            {request: with(plan.Apply, func(r *plan.Request) { r.Kind, r.Manifest = roleBindings, objectOf(roleBindings, "one") }), sent: []OmegaMatcher{HavePrefix("PATCH /apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/one")}, want: HaveField("IsCreated", true)},
		// An aggregated API server can ignore the option dryRun.
		"a dry run for an aggregated server": {request: with(plan.Apply, aggregated), err: Satisfy(dryrun.IsUnsupported)},
		"a read from an aggregated server":   {request: with(plan.Read, aggregated), err: Satisfy(dryrun.IsUnsupported)},
		"Read":                               {request: with(plan.Read, nil), sent: []OmegaMatcher{HaveSuffix("dryRun=All {}")}, want: HaveField("Object", Not(BeNil()))},
		"SetManagers":                        {request: with(plan.SetManagers, func(r *plan.Request) { r.Managers, r.ResourceVersion = []metav1.ManagedFieldsEntry{{}}, "5" }), sent: []OmegaMatcher{ContainSubstring(`{"metadata":{"managedFields":[{}],"resourceVersion":"5"}}`)}, want: HaveField("Metadata.UID", BeEquivalentTo("uid"))},
		"SetManagers in any version":         {request: with(plan.SetManagers, func(r *plan.Request) { r.Managers = []metav1.ManagedFieldsEntry{{}} }), sent: []OmegaMatcher{ContainSubstring(`{"metadata":{"managedFields":[{}]}}`)}, want: HaveField("Err", BeNil())},
		"SetManagers fails":                  {request: with(plan.SetManagers, nil), answers: map[string]answer{"PATCH " + path: notFound}, sent: []OmegaMatcher{HavePrefix("PATCH")}, err: Satisfy(apierrors.IsNotFound)},
		"SetManagers of an unserved kind":    {request: with(plan.SetManagers, unknownKind), err: MatchError(ContainSubstring("does not serve"))},
		"Delete":                             {request: with(plan.Delete, func(r *plan.Request) { r.UID, r.ResourceVersion = "uid", "5" }), answers: map[string]answer{"DELETE " + path: deleted}, sent: []OmegaMatcher{ContainSubstring(`"preconditions":{"uid":"uid","resourceVersion":"5"}`)}, want: HaveField("IsGone", true)},
		"Delete without a version":           {request: with(plan.Delete, func(r *plan.Request) { r.UID = "uid" }), answers: map[string]answer{"DELETE " + path: deleted}, sent: []OmegaMatcher{ContainSubstring(`"preconditions":{"uid":"uid"}`)}, want: HaveField("IsGone", true)},
		"Delete, finalizers":                 {request: with(plan.Delete, nil), answers: map[string]answer{"DELETE " + path: accepted}, sent: []OmegaMatcher{HavePrefix("DELETE")}, want: HaveField("IsGone", false)},
		"Delete, does not exist":             {request: with(plan.Delete, nil), answers: map[string]answer{"DELETE " + path: notFound}, sent: []OmegaMatcher{HavePrefix("DELETE")}, want: HaveField("IsGone", true)},
		"Delete fails":                       {request: with(plan.Delete, nil), answers: map[string]answer{"DELETE " + path: failed}, sent: []OmegaMatcher{HavePrefix("DELETE")}, err: HaveOccurred()},
		"Delete an unserved kind":            {request: with(plan.Delete, unknownKind), err: MatchError(ContainSubstring("does not serve"))},
		// The API server must report that an object does not exist, and not that it does not serve this version of the kind.
		"Delete, the version is not served": {request: with(plan.Delete, nil), answers: map[string]answer{"DELETE " + path: {http.StatusNotFound, "404 page not found"}}, sent: []OmegaMatcher{HavePrefix("DELETE")}, err: HaveOccurred()},
		"SetMetadata": {
			request: with(plan.SetMetadata, func(r *plan.Request) {
				r.Changes = plan.MetadataChanges{{Kind: template.KindAnnotation, Name: "a"}: nil, {Kind: template.KindLabel, Name: "b"}: ptr.To("c")}
			}),
			answers: map[string]answer{"PATCH /api/v1/namespaces/ns": {http.StatusOK, metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "ns"},
			}}},
			sent: []OmegaMatcher{And(ContainSubstring(`"annotations":{"a":null}`), ContainSubstring(`"labels":{"b":"c"}`), ContainSubstring(`"uid":"ns-uid"`), Not(ContainSubstring("resourceVersion")))},
			want: HaveField("Err", BeNil()),
		},
		"Discover":                     {request: with(plan.Discover, func(r *plan.Request) { r.Kind = things }), answers: map[string]answer{"GET /apis/aggregated.example.com": notFound}, sent: []OmegaMatcher{HavePrefix("GET")}, want: HaveField("IsServed", false)},
		"Confirm":                      {request: with(plan.Confirm, nil), objects: []client.Object{live, team(), account}, want: And(HaveField("Namespace.UID", BeEquivalentTo("ns-uid")), HaveField("Template.Name", "team"), HaveField("HasAccount", false))},
		"Confirm with the account":     {request: with(plan.Confirm, func(r *plan.Request) { r.MustFindAccount = true }), objects: []client.Object{live, team(), account}, want: HaveField("HasAccount", true)},
		"Confirm without the account":  {request: with(plan.Confirm, func(r *plan.Request) { r.MustFindAccount = true }), objects: []client.Object{live, team()}, want: HaveField("HasAccount", false)},
		"Confirm, accounts are hidden": {request: with(plan.Confirm, func(r *plan.Request) { r.MustFindAccount = true }), objects: []client.Object{live, team()}, funcs: failList, err: MatchError(outage)},
		"Confirm without a namespace":  {request: with(plan.Confirm, nil), objects: []client.Object{live, team()}, funcs: failGet(live), err: MatchError(outage)},
		"Confirm without a template":   {request: with(plan.Confirm, nil), objects: []client.Object{live, team()}, funcs: failGet(team()), err: MatchError(outage)},
		"CheckGranted":                 {request: with(plan.CheckGranted, nil), stores: stores{err: outage}, err: MatchError(outage)},
		"FindUncounted":                {request: with(plan.FindUncounted, nil), objects: []client.Object{quota}, want: HaveField("IsUncounted", true)},
		"FindUncounted, counted":       {request: with(plan.FindUncounted, nil), objects: []client.Object{counted}, want: HaveField("IsUncounted", false)},
		"FindUncounted, none":          {request: with(plan.FindUncounted, nil), want: HaveField("IsUncounted", false)},
		"FindUncounted fails":          {request: with(plan.FindUncounted, nil), funcs: failList, err: MatchError(outage)},
		"an unknown verb":              {request: with("x", nil), err: MatchError(ContainSubstring("unknown verb"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, server, known := NewWithT(t), &apiServer{answers: test.answers}, test.stores
			executor := server.executor(t, &known, test.funcs, test.objects...)
			response := executor.send(t.Context(), plan.Operation{Request: test.request, Namespace: namespaceOf(nil), Template: team()})
			g.Expect(server.sent).To(HaveLen(len(test.sent)))
			for i, matcher := range test.sent {
				g.Expect(server.sent[i]).To(matcher)
				g.Expect(strings.Contains(server.sent[i], "system:serviceaccount:system:account")).To(Equal(test.request.Verb != plan.Discover), "impersonated")
			}
			if test.err != nil {
				g.Expect(response.Err).To(test.err)
				return
			}
			g.Expect(response.Err).NotTo(HaveOccurred())
			g.Expect(response).To(test.want)
		})
	}
}

// The authorizer tries whether a ServiceAccount may apply an object.
func TestDryRun(t *testing.T) {
	g, server := NewWithT(t), &apiServer{}
	writer := newWriter(t, server.handle)
	g.Expect(writer.DryRun(t.Context(), team(), namespaceOf(nil), configMap("one"))).To(Succeed())
	g.Expect(server.sent).To(HaveExactElements(HaveSuffix("force=true dryRun=All")))
	outside := configMap("one")
	outside.SetNamespace("other")
	g.Expect(writer.DryRun(t.Context(), team(), namespaceOf(nil), outside)).To(MatchError(ContainSubstring("namespace")))
	g.Expect(server.sent).To(HaveLen(1))
	writer = newWriter(t, server.handle)
	writer.Config.Host = "://"
	g.Expect(writer.DryRun(t.Context(), team(), namespaceOf(nil), configMap("one"))).To(MatchError(ContainSubstring("failed to create a client")))
	_, err := writer.setMetadata(t.Context(), "account", namespaceOf(nil), plan.Request{})
	g.Expect(err).To(MatchError(ContainSubstring("failed to create a client")))
	g.Expect(slices.Contains(plan.Actions(), plan.ActionDelete)).To(BeTrue())
}
