// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import "github.com/nslifecycle/nslifecycle/test/wrappers"

type object = map[string]any

var (
	matrixPod = object{
		"restartPolicy": "Never",
		"containers": []any{object{
			"name": "c", "image": "example.com/c", "resources": object{"requests": object{"cpu": "1"}},
		}},
	}
	matrixPodTemplate = object{"metadata": object{"labels": object{"app": "a"}}, "spec": matrixPod}
	// matrixWorkload is the spec of a workload whose Pods are always restarted.
	matrixWorkload = object{
		"selector": object{"matchLabels": object{"app": "a"}},
		"template": object{"metadata": object{"labels": object{"app": "a"}}, "spec": object{
			"containers": matrixPod["containers"],
		}},
	}
	matrixJob = object{"template": object{"spec": matrixPod}}
)

// matrixObjects are the bodies of valid objects without apiVersion, kind and metadata, by resource, and the
// bodies of the subresources that can only be created. %NAME% is the namespace.
var matrixObjects = map[string]object{
	"bindings":   {"target": object{"kind": "Node", "name": "n"}},
	"configmaps": {"data": object{"a": "b"}},
	"endpoints":  {"subsets": []any{}},
	"events": {
		"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "r", "action": "a",
		"reportingComponent": "example.com/c", "reportingInstance": "i", "involvedObject": object{"namespace": "%NAME%"},
	},
	"limitranges": {"spec": object{"limits": []any{}}},
	"persistentvolumeclaims": {"spec": object{
		"accessModes": []any{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Gi"}},
	}},
	"pods":                   {"spec": matrixPod},
	"podtemplates":           {"template": matrixPodTemplate},
	"replicationcontrollers": {"spec": object{"selector": object{"app": "a"}, "template": matrixWorkload["template"]}},
	"resourcequotas":         {"spec": object{"hard": object{"pods": "100"}}},
	"secrets":                {"type": "Opaque"},
	"serviceaccounts":        {},
	"services":               {"spec": object{"ports": []any{object{"port": 80}}}},

	"controllerrevisions.apps": {"revision": 1, "data": object{}},
	"daemonsets.apps":          {"spec": matrixWorkload},
	"deployments.apps":         {"spec": matrixWorkload},
	"replicasets.apps":         {"spec": matrixWorkload},
	"statefulsets.apps":        {"spec": matrixWorkload},
	"cronjobs.batch":           {"spec": object{"schedule": "* * * * *", "jobTemplate": object{"spec": matrixJob}}},
	"jobs.batch":               {"spec": matrixJob},

	"horizontalpodautoscalers.autoscaling": {"spec": object{
		"maxReplicas": 1, "scaleTargetRef": object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
	}},
	"podcertificaterequests.certificates.k8s.io": {"spec": object{
		"signerName": "example.com/s", "podName": "p", "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "u",
		"nodeName": "n", "nodeUID": "u", "stubPKCS10Request": wrappers.MakeCertificateRequest(),
	}},
	"leases.coordination.k8s.io":      {"spec": object{}},
	"endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": []any{}},
	"ingresses.networking.k8s.io": {"spec": object{
		"defaultBackend": object{"service": object{"name": "s", "port": object{"number": 80}}},
	}},
	"networkpolicies.networking.k8s.io":   {"spec": object{"podSelector": object{}}},
	"poddisruptionbudgets.policy":         {"spec": object{"maxUnavailable": 1}},
	"csistoragecapacities.storage.k8s.io": {"storageClassName": "s"},
	"events.events.k8s.io": {
		"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "r", "action": "a",
		"reportingController": "example.com/c", "reportingInstance": "i", "regarding": object{"namespace": "%NAME%"},
	},
	"roles.rbac.authorization.k8s.io": {"rules": []any{}},
	"rolebindings.rbac.authorization.k8s.io": {
		"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
	},
	"resourceclaims.resource.k8s.io":         {"spec": object{}},
	"resourceclaimtemplates.resource.k8s.io": {"spec": object{"spec": object{}}},
	"widgets." + matrixGroup:                 {"spec": object{"replicas": 1}},

	"pods/binding": {
		"apiVersion": "v1", "kind": "Binding", "metadata": object{"name": matrixExisting},
		"target": object{"kind": "Node", "name": "n"},
	},
	"pods/eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": matrixExisting}},
	"serviceaccounts/token": {
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{"audiences": []any{"a"}},
	},
}
