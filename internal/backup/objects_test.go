// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func TestClean(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"any object loses server-set fields, owner references, finalizers and status": {
			given: `{apiVersion: v1, kind: ConfigMap, data: {a: b}, status: {x: y}, metadata: {
        name: c, namespace: nn, generateName: g, uid: u, resourceVersion: "1", generation: 3, selfLink: s,
        creationTimestamp: "2026-01-01T00:00:00Z", deletionTimestamp: "2026-01-01T00:00:00Z",
        deletionGracePeriodSeconds: 0, managedFields: [{manager: m}], finalizers: [f.example.com/x],
        ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: q}],
        labels: {keep: "1"},
        annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", keep: "2"}}}`,
			want: `{apiVersion: v1, kind: ConfigMap, data: {a: b}, metadata: {
        name: c, namespace: nn, labels: {keep: "1"}, annotations: {keep: "2"}}}`,
		},
		"a Namespace loses its initialization state": {
			given: `{apiVersion: v1, kind: Namespace, spec: {finalizers: [kubernetes]}, status: {phase: Active}, metadata: {
        name: nn, labels: {kubernetes.io/metadata.name: nn, nslifecycle.dev/initializing: "true", nslifecycle.dev/template: team},
        annotations: {nslifecycle.dev/pending-initializers: a.b.c}}}`,
			want: `{apiVersion: v1, kind: Namespace, metadata: {name: nn, labels: {nslifecycle.dev/template: team}}}`,
		},
		"a Service loses its addresses": {
			given: `{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1],
        healthCheckNodePort: 30001, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{port: 1, nodePort: 30002}]}}`,
			want: `{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 1, nodePort: 30002}]}}`,
		},
		"a headless dual-stack Service does not change": {
			given: `{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: None, clusterIPs: [None],
        ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack}}`,
			want: `{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: None, clusterIPs: [None],
        ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack}}`,
		},
		"a PersistentVolumeClaim bound by the cluster loses its volume": {
			given: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: v, storageClassName: s}, metadata: {name: c,
        annotations: {pv.kubernetes.io/bound-by-controller: "yes", pv.kubernetes.io/bind-completed: "yes",
        volume.kubernetes.io/selected-node: nn}}}`,
			want: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {storageClassName: s}, metadata: {name: c}}`,
		},
		"a PersistentVolumeClaim bound by the user keeps its volume": {
			given: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: v}, metadata: {name: c,
        annotations: {pv.kubernetes.io/bind-completed: "yes"}}}`,
			want: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: v}, metadata: {name: c}}`,
		},
		"a Pod loses its node and its token volume": {
			given: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: nn, serviceAccount: a, serviceAccountName: a,
        priority: 0, preemptionPolicy: PreemptLowerPriority, ephemeralContainers: [{name: e}],
        volumes: [{name: kube-api-access-x1, projected: {}}, {name: d}],
        initContainers: [{name: i, volumeMounts: [{name: kube-api-access-x1, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}],
        containers: [{name: c, volumeMounts: [{name: d, mountPath: /d},
          {name: kube-api-access-x1, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]}}`,
			want: `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {serviceAccountName: a, volumes: [{name: d}],
        initContainers: [{name: i}], containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}]}}`,
		},
		"a Pod without containers does not change": {
			given: `{apiVersion: v1, kind: Pod, metadata: {name: p}}`,
			want:  `{apiVersion: v1, kind: Pod, metadata: {name: p}}`,
		},
		"a Job loses its generated selector": {
			given: `{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {job-name: j, app: a}}, spec: {
        manualSelector: false, selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, template: {metadata: {
        creationTimestamp: null, labels: {batch.kubernetes.io/controller-uid: u, controller-uid: u, job-name: j}}}}}`,
			want: `{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {app: a}}, spec: {template: {metadata: {}}}}`,
		},
		"a Job keeps a manual selector": {
			given: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true,
        selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}}}}`,
			want: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true,
        selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}}}}`,
		},
		"a ServiceAccount token Secret loses its token": {
			given: `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, data: {token: dA==}, metadata: {
        name: s, annotations: {kubernetes.io/service-account.name: a, kubernetes.io/service-account.uid: u}}}`,
			want: `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {
        name: s, annotations: {kubernetes.io/service-account.name: a}}}`,
		},
		"templates lose empty timestamps": {
			given: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {
        template: {metadata: {creationTimestamp: null, labels: {a: b}}},
        volumeClaimTemplates: [{metadata: {name: d, creationTimestamp: null}, status: {phase: Pending}}]}}`,
			want: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {
        template: {metadata: {labels: {a: b}}}, volumeClaimTemplates: [{metadata: {name: d}}]}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			given := parse(t, test.given)
			before := given.DeepCopy()
			g.Expect(Clean(given).Object).To(Equal(parse(t, test.want).Object))
			g.Expect(given).To(Equal(before), "Clean must not change its argument")
		})
	}
}

func TestSkipReason(t *testing.T) {
	service := `{apiVersion: v1, kind: Service, metadata: {name: s, uid: s}, spec: {selector: {a: b}}}`
	owner := `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: o, uid: owner}}`
	replicaSets := resourcetypes.Type{Kind: "ReplicaSet"}
	replicaSets.Group, replicaSets.Version, replicaSets.Resource = "apps", "v1", "replicasets"
	controlled := `{apiVersion: v1, kind: Pod, metadata: {name: p, uid: p, ownerReferences: [
    {apiVersion: apps/v1, kind: ReplicaSet, name: o, uid: owner, controller: true}]}}`
	tests := map[string]struct {
		object string
		others []string
		listed []resourcetypes.Type
		want   Reason
	}{
		"controlled, controller found": {object: controlled, others: []string{owner},
			listed: []resourcetypes.Type{replicaSets}, want: ReasonControlled},
		"controlled, controller type not selected": {object: controlled, want: ReasonControlled},
		"controlled, controller not found":         {object: controlled, listed: []resourcetypes.Type{replicaSets}},
		"owned but not controlled": {object: `{apiVersion: v1, kind: Pod, metadata: {name: p, uid: p, ownerReferences: [
      {apiVersion: apps/v1, kind: ReplicaSet, name: o, uid: owner}]}}`, others: []string{owner}},
		"a claim of a StatefulSet": {object: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, ownerReferences: [
      {apiVersion: apps/v1, kind: StatefulSet, name: o, uid: owner, controller: true}]}}`, others: []string{owner}},
		"a claim of an ephemeral volume": {object: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, ownerReferences: [
      {apiVersion: v1, kind: Pod, name: o, uid: owner, controller: true}]}}`, others: []string{owner}, want: ReasonControlled},
		"the root CA":                {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}}`, want: ReasonGenerated},
		"another ConfigMap":          {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`},
		"the default ServiceAccount": {object: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`, want: ReasonGenerated},
		"a modified ServiceAccount":  {object: `{apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: s}], metadata: {name: default}}`},
		"an Event":                   {object: `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: e}}`, want: ReasonGenerated},
		"a Lease":                    {object: `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: e}}`, want: ReasonGenerated},
		"a certificate request of a kubelet": {object: `{apiVersion: certificates.k8s.io/v1, kind: PodCertificateRequest, ` +
			`metadata: {name: r, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}]}}`, want: ReasonGenerated},
		"Endpoints of a Service with a selector": {object: `{apiVersion: v1, kind: Endpoints, metadata: {name: s}}`,
			others: []string{service}, want: ReasonGenerated},
		"Endpoints created by the user": {object: `{apiVersion: v1, kind: Endpoints, metadata: {name: t}}`, others: []string{service}},
		"a completed Pod":               {object: `{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Succeeded}}`, want: ReasonCompleted},
		"a running Pod":                 {object: `{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Running}}`},
		"a failed Job": {object: `{apiVersion: batch/v1, kind: Job, metadata: {name: p},
      status: {conditions: [{type: Failed, status: "True"}]}}`, want: ReasonCompleted},
		"a suspended Job": {object: `{apiVersion: batch/v1, kind: Job, metadata: {name: p},
      status: {conditions: [{type: Suspended, status: "True"}]}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var found []*unstructured.Unstructured
			for _, text := range append(test.others, test.object) {
				found = append(found, parse(t, text))
			}
			selected := newSelection(found, test.listed, []resourcetypes.Type{replicaSets})
			g.Expect(selected.skipReason(found[len(found)-1])).To(Equal(test.want))
		})
	}
}

func TestSortObjectsAndWrite(t *testing.T) {
	g := NewWithT(t)
	texts := []string{
		`{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}}`,
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}}`,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}`,
		`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}}`,
		`{apiVersion: v1, kind: Namespace, metadata: {name: nn}}`,
	}
	var objects []*unstructured.Unstructured
	for _, text := range texts {
		objects = append(objects, parse(t, text))
	}
	sortObjects(objects)
	var names string
	for _, object := range objects {
		names += object.GetName()
	}
	g.Expect(names).To(Equal("nnsabdrtq"))

	var out bytes.Buffer
	g.Expect(Write(&out, objects[:2])).To(Succeed())
	g.Expect(out.String()).To(Equal("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: nn\n" +
		"---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: s\n"))
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return object
}

// TestWrite verifies that kubectl's decoder returns the objects that were written.
func TestWrite(t *testing.T) {
	parts := []string{
		"a", "\u0085", "\u2028", "\u2029", "\n", " ", "\t", "\r", "\x00", "\x01", "\x7f", "\u009f", "\ufeff", "\u00a0",
		"---", "...", "#", ":", `"`, "'", "-", "\ufffd", "\U0001F600", "|", "{", `\`, "<",
		"\x1b", "\u202e", "\U000e0041",
	}
	objects := []*unstructured.Unstructured{makeObject(strings.Repeat("long", 1000) + "\u202e")}
	for _, first := range parts {
		for _, second := range parts {
			for _, text := range []string{first, first + second, first + second + "b" + first, "a" + first + "\n" + second} {
				objects = append(objects, makeObject(text))
			}
		}
	}
	expectSameObjects(t, objects)
}

func FuzzWrite(f *testing.F) {
	for _, text := range []string{"a", "\u202e\n---\n", "\ufeff\u2028", "\U000e0001\xff", "<<", "\u009b2J"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		expectSameObjects(t, []*unstructured.Unstructured{makeObject(strings.ToValidUTF8(text, "?")), makeObject("next")})
	})
}

// makeObject returns an object that contains text as a value, as a key and as its name.
func makeObject(text string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": text},
		"data": map[string]any{"k": text, text: "v"}, "text": text, "number": int64(1) << 60,
	}}
}

// expectSameObjects writes objects and verifies that they are decoded unchanged.
func expectSameObjects(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	var written bytes.Buffer
	if err := Write(&written, objects); err != nil {
		t.Fatal(err)
	}
	if !printable.IsDocument(written.String()) {
		t.Errorf("not printable: %q", written.String())
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(&written, 4096)
	for i, object := range objects {
		read := &unstructured.Unstructured{}
		if err := decoder.Decode(read); err != nil {
			t.Fatalf("document %d with text %q: %v", i, object.Object["text"], err)
		}
		if diff := cmp.Diff(object.Object, read.Object); diff != "" {
			t.Error(diff)
		}
	}
}
