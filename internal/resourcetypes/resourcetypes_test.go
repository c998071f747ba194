// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcetypes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// discovered is a Discoverer with a fixed result.
type discovered struct {
	lists []*metav1.APIResourceList
	err   error
}

func (d discovered) ServerPreferredNamespacedResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	return d.lists, d.err
}

var errDown = errors.New("the server is currently unable to handle the request")

func TestDiscover(t *testing.T) {
	core := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"list"}},
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
		{Name: "nodes", Kind: "Node"},
		// The API server cannot serve these types in a namespace.
		{Name: "status", Kind: "A", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
		{Name: "finalize", Kind: "B", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
	}}
	odd := &metav1.APIResourceList{GroupVersion: "a/b/c", APIResources: []metav1.APIResource{{Name: "x", Namespaced: true}}}
	traversing := schema.GroupVersion{Group: "vendor.example.com", Version: "v1"}
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

	found, err := Discover(t.Context(), discovered{
		lists: []*metav1.APIResourceList{core, odd, {GroupVersion: "empty.example.com/v1"}, {
			GroupVersion: traversing.String(), APIResources: []metav1.APIResource{{Name: "..", Namespaced: true}},
		}},
		err: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{metrics: errDown}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range found.Types {
		names = append(names, one.String())
	}
	if !slices.Equal(names, []string{"configmaps", "secrets"}) {
		t.Errorf("got types %v", names)
	}
	if !found.Types[0].Can("delete") || found.Types[1].Can("delete") {
		t.Errorf("got verbs %+v", found.Types)
	}
	if got := found.Types[0].GroupVersionKind().String(); got != "/v1, Kind=ConfigMap" {
		t.Errorf("got kind %s", got)
	}
	if !errors.Is(found.Failed[metrics], errDown) || found.Failed[traversing] == nil || found.Unparsed["a/b/c"] == nil {
		t.Errorf("got failed %v, unparsed %v", found.Failed, found.Unparsed)
	}
	if text := found.Err().Error(); !strings.Contains(text, "metrics.k8s.io/v1beta1") || !strings.Contains(text, `"a/b/c"`) {
		t.Errorf("got error %q", text)
	}
}

func TestDistinct(t *testing.T) {
	of := func(names ...string) []Type {
		var all []Type
		for _, name := range names {
			one := Type{}
			resource := schema.ParseGroupResource(name)
			one.Group, one.Resource = resource.Group, resource.Resource
			all = append(all, one)
		}
		return all
	}
	for want, types := range map[string][]Type{
		"[events roles.rbac.authorization.k8s.io]": of("events", "roles.authorization.openshift.io", "events.events.k8s.io",
			"roles.rbac.authorization.k8s.io"),
		// The type with the same objects as the first one is not among them.
		"[rolebindings.authorization.openshift.io roles.rbac.authorization.k8s.io]": of(
			"rolebindings.authorization.openshift.io", "roles.rbac.authorization.k8s.io"),
	} {
		if got := fmt.Sprint(Distinct(types)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestDiscoverNothing(t *testing.T) {
	for name, result := range map[string]discovered{"an error": {err: errDown}, "no types": {}} {
		if found, err := Discover(t.Context(), result); err == nil {
			t.Errorf("%s: got %+v", name, found)
		}
	}
}

var configMaps = Type{
	GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	Kind:                 "ConfigMap", Verbs: []string{"list", "delete"},
}

// newClient returns a client whose list requests return the given pages or errors in order. It also
// returns the options of these requests.
func newClient(responses ...any) (*metadatafake.FakeMetadataClient, *[]metav1.ListOptions) {
	scheme := metadatafake.NewTestScheme()
	_ = metav1.AddMetaToScheme(scheme)
	client := metadatafake.NewSimpleMetadataClient(scheme)
	var requests []metav1.ListOptions
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		at := len(requests)
		requests = append(requests, options)
		switch response := responses[at].(type) {
		case error:
			return true, nil, response
		case *metav1.List:
			return true, response, nil
		}
		return false, nil, nil
	})
	return client, &requests
}

func page(next string, remaining *int64, names ...string) *metav1.List {
	list := &metav1.List{}
	list.Continue, list.RemainingItemCount = next, remaining
	for _, name := range names {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	return list
}

func TestList(t *testing.T) {
	expired := apierrors.NewResourceExpired("the provided continue parameter is too old")
	for name, test := range map[string]struct {
		of        Type
		limit     int
		responses []any
		names     []string
		count     int
		isAtLeast bool
		err       string
	}{
		"no objects":                         {of: configMaps, responses: []any{page("", nil)}},
		"one page":                           {of: configMaps, responses: []any{page("", nil, "a", "b")}, names: []string{"a", "b"}, count: 2},
		"two pages":                          {of: configMaps, responses: []any{page("x", nil, "a"), page("", nil, "b")}, names: []string{"a", "b"}, count: 2},
		"a limit":                            {of: configMaps, limit: 1, responses: []any{page("x", new(int64(41)), "a")}, names: []string{"a"}, count: 42},
		"a limit, without a remaining count": {of: configMaps, limit: 1, responses: []any{page("x", nil, "a")}, names: []string{"a"}, count: 1, isAtLeast: true},
		"an expired list is repeated":        {of: configMaps, responses: []any{page("x", nil, "a"), expired, page("", nil, "a", "b")}, names: []string{"a", "b"}, count: 2},
		"an error on the second page":        {of: configMaps, responses: []any{page("x", nil, "a"), errDown}, names: []string{"a"}, count: 1, err: "configmaps"},
		"a type that is no longer served":    {of: configMaps, responses: []any{apierrors.NewNotFound(schema.GroupResource{}, "")}},
		"a type that does not support list":  {of: Type{GroupVersionResource: configMaps.GroupVersionResource, Verbs: []string{"delete"}}, err: "does not support listing configmaps"},
		"a type that can only be created":    {of: Type{GroupVersionResource: configMaps.GroupVersionResource, Verbs: []string{"create"}}},
	} {
		t.Run(name, func(t *testing.T) {
			client, requests := newClient(test.responses...)
			found := List(t.Context(), client, "shop", []Type{test.of}, test.limit)
			if len(*requests) != len(test.responses) {
				t.Errorf("got %d requests, want %d", len(*requests), len(test.responses))
			}
			if test.count == 0 && test.err == "" {
				if len(found) > 0 {
					t.Errorf("got %+v", found)
				}
				return
			}
			if len(found) != 1 {
				t.Fatalf("got %+v", found)
			}
			var names []string
			for _, object := range found[0].Objects {
				names = append(names, object.Name)
			}
			if !slices.Equal(names, test.names) || found[0].Count != test.count || found[0].IsAtLeast != test.isAtLeast {
				t.Errorf("got %v of %d, %t", names, found[0].Count, found[0].IsAtLeast)
			}
			if text := fmt.Sprint(found[0].Err); test.err != "" && !strings.Contains(text, test.err) || test.err == "" && found[0].Err != nil {
				t.Errorf("got error %v", found[0].Err)
			}
		})
	}
}

func TestListWrapsErrors(t *testing.T) {
	client, _ := newClient(&apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
	}})
	found := List(t.Context(), client, "shop", []Type{configMaps}, Unlimited)
	if len(found) != 1 || !apierrors.IsServiceUnavailable(found[0].Err) {
		t.Errorf("got %+v", found)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
