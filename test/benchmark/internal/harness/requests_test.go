// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

func TestParseRequests(t *testing.T) {
	const text = `# HELP apiserver_request_total [STABLE] Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 12
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="namespace",subresource="",verb="LIST",version="v1"} 1.5e+01
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="namespace",subresource="",verb="DELETE",version="v1"} 4
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="",verb="DELETE",version="v1"} 6
apiserver_request_total{code="200",component="apiserver",dry_run="All",group="apps",resource="deployments",scope="resource",subresource="",verb="APPLY",version="v1"} 3
apiserver_request_total{code="404",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 7
apiserver_request_total{code="0",component="apiserver",dry_run="",group="",resource="namespaces",scope="cluster",subresource="",verb="WATCH",version="v1"} 2
apiserver_longrunning_requests{component="apiserver",group="",resource="namespaces",scope="cluster",subresource="",verb="WATCH",version="v1"} 3
apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="resource",subresource="exec",verb="CONNECT",version="v1"} 9
apiserver_request_total_of_something_else{verb="PUT"} 100
process_start_time_seconds 1.7e+09
`
	got, err := parseRequests(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Counts{"LIST": 27, "WATCH": 5, "DELETE": 6, "DELETECOLLECTION": 4, DryRun: 3}); !maps.Equal(got, want) {
		t.Errorf("parseRequests = %v, want %v", got, want)
	}
	got, err = parseRequests(strings.NewReader(text), "pods", "deployments")
	if want := (Counts{"WATCH": 5}); err != nil || !maps.Equal(got, want) {
		t.Errorf("parseRequests without two resources = %v, %v; want %v", got, err, want)
	}
	for _, broken := range []string{
		`apiserver_request_total{verb="LIST"}`, `apiserver_request_total{verb="LIST"} many`,
		`apiserver_request_total{verb=LIST} 1`, `apiserver_request_total{verb} 1`,
	} {
		if got, err := parseRequests(strings.NewReader(broken)); err == nil {
			t.Errorf("%s was parsed as %v, want an error", broken, got)
		}
	}
}

func TestParseSample(t *testing.T) {
	labels, value, err := parseSample(`a="with \"quotes\", a comma and a }",b=""} 3 1700000000000`)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a": `with "quotes", a comma and a }`, "b": ""}; !maps.Equal(labels, want) || value != 3 {
		t.Errorf("parseSample = %q, %v; want %q, 3", labels, value, want)
	}
}

func TestCountsMinus(t *testing.T) {
	before := Counts{"LIST": 3, "PUT": 2}
	got := Counts{"LIST": 10, "PUT": 2, "GET": 1}.Minus(before)
	if want := (Counts{"LIST": 7, "GET": 1}); !maps.Equal(got, want) {
		t.Errorf("The difference is %v, want %v", got, want)
	}
	if got.Total() != 8 {
		t.Errorf("The total is %d, want 8", got.Total())
	}
	if len(before) != 2 || before["LIST"] != 3 {
		t.Errorf("minus changed its argument to %v", before)
	}
}

func TestMeterCountsByVerb(t *testing.T) {
	m := NewMeter()
	sent := m.Wrap(roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }))
	for _, request := range [][2]string{
		{http.MethodDelete, "/api/v1/namespaces/a"}, {http.MethodDelete, "/api/v1/namespaces/b"},
		{http.MethodPatch, "/api/v1/namespaces/a"}, {http.MethodGet, "/api/v1/namespaces?watch=true"},
		{http.MethodGet, "/api/v1/namespaces?limit=1"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request[0], request[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sent.RoundTrip(r); err != nil { //nolint:bodyclose // There is no response.
			t.Fatal(err)
		}
	}
	if want := (Counts{"DELETE": 2, "PATCH": 1, "WATCH": 1, "LIST": 1}); !maps.Equal(m.Read(), want) {
		t.Errorf("The Meter counted %v, want %v", m.Read(), want)
	}
}
