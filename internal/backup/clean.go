// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// serverAnnotations are the annotations that the cluster sets. A name with a trailing slash matches
// all keys with this prefix.
var serverAnnotations = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	"deployment.kubernetes.io/revision",
	"deprecated.daemonset.template.generation",
	"batch.kubernetes.io/job-tracking",
	"endpoints.kubernetes.io/last-change-trigger-time",
	"kubernetes.io/service-account.uid",
	"pv.kubernetes.io/",
	"volume.kubernetes.io/selected-node",
	"volume.kubernetes.io/storage-provisioner",
	"volume.beta.kubernetes.io/storage-provisioner",
	v1alpha1.Prefix,
}

// serverLabels are the labels that the cluster sets, in the same format.
var serverLabels = []string{
	"kubernetes.io/metadata.name",
	"kubernetes.io/legacy-token-last-used",
	v1alpha1.Prefix,
}

// cleaners maps kinds to functions that remove the fields that the cluster sets in these objects.
var cleaners = map[string]func(object map[string]any){
	"Namespace":             cleanNamespace,
	"Secret":                cleanSecret,
	"PersistentVolumeClaim": cleanClaim,
	"Service":               cleanService,
	"Pod":                   cleanPod,
	"Job.batch":             cleanJob,
}

// Clean returns a copy of an object without its status, owner references, finalizers, and the
// fields that the cluster sets. A recreated owner has a new UID, and the garbage collector would
// delete objects that refer to the old UID. Controllers add their finalizers again.
func Clean(object *unstructured.Unstructured) *unstructured.Unstructured {
	clean := object.DeepCopy()
	if cleaner := cleaners[groupKind(object).String()]; cleaner != nil {
		cleaner(clean.Object)
	}
	cleanTemplates(clean.Object)
	metadata := map[string]any{"name": clean.GetName()}
	if namespace := clean.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	if labels := without(clean.GetLabels(), serverLabels); len(labels) > 0 {
		metadata["labels"] = labels
	}
	if annotations := without(clean.GetAnnotations(), serverAnnotations); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	clean.Object["metadata"] = metadata
	delete(clean.Object, "status")
	return clean
}

// without returns a copy of a map without the keys that match any of the names.
func without(values map[string]string, names []string) map[string]any {
	kept := map[string]any{}
	for key, value := range values {
		if !slices.ContainsFunc(names, func(name string) bool {
			return key == name || strings.HasSuffix(name, "/") && strings.HasPrefix(key, name)
		}) {
			kept[key] = value
		}
	}
	return kept
}

// cleanTemplates removes the empty fields that the API server adds to templates, because strict
// validation rejects them.
func cleanTemplates(object map[string]any) {
	for _, path := range [][]string{
		{"spec", "template"}, {"spec", "jobTemplate"}, {"spec", "jobTemplate", "spec", "template"},
	} {
		removeEmptyTimestamp(mapAt(object, path...))
	}
	claims, _ := mapAt(object, "spec")["volumeClaimTemplates"].([]any)
	for _, claim := range claims {
		template, _ := claim.(map[string]any)
		removeEmptyTimestamp(template)
		delete(template, "status")
	}
}

func removeEmptyTimestamp(template map[string]any) {
	metadata := mapAt(template, "metadata")
	if created, ok := metadata["creationTimestamp"]; ok && created == nil {
		delete(metadata, "creationTimestamp")
	}
}

// mapAt returns the map at a path, or nil if it does not exist. The map is not a copy.
func mapAt(object map[string]any, path ...string) map[string]any {
	for _, field := range path {
		object, _ = object[field].(map[string]any)
	}
	return object
}

func removeFields(object map[string]any, fields ...string) {
	for _, field := range fields {
		delete(object, field)
	}
}
