// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"maps"
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
	if got != 45 {
		t.Errorf("parseRequests = %d, want 45", got)
	}
	got, err = parseRequests(strings.NewReader(text), "pods", "deployments")
	if err != nil || got != 5 {
		t.Errorf("parseRequests without two resources = %d, %v; want 5", got, err)
	}
	for _, broken := range []string{
		`apiserver_request_total{verb="LIST"}`, `apiserver_request_total{verb="LIST"} many`,
		`apiserver_request_total{verb=LIST} 1`, `apiserver_request_total{verb} 1`,
	} {
		if got, err := parseRequests(strings.NewReader(broken + "\n")); err == nil {
			t.Errorf("%s was parsed as %d, want an error", broken, got)
		}
	}
}

func TestReadSamples(t *testing.T) {
	const text = `requests{a="with \"quotes\", a comma and a }",b=""} 3 1700000000000` + "\n"
	count := 0
	err := ReadSamples(strings.NewReader(text), []string{"requests"}, func(_ string, labels map[string]string, value float64) {
		count++
		if want := map[string]string{"a": `with "quotes", a comma and a }`, "b": ""}; !maps.Equal(labels, want) || value != 3 {
			t.Errorf("got %q, %v; want %q, 3", labels, value, want)
		}
	})
	if err != nil || count != 1 {
		t.Errorf("got %d samples, %v; want one", count, err)
	}
}
