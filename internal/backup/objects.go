// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/printable"
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
	labels := without(clean.GetLabels(), serverLabels)
	for _, key := range []string{v1alpha1.LabelDeletionProtection, v1alpha1.LabelTemplate} { // Users set them.
		if value, ok := clean.GetLabels()[key]; ok && groupKind(clean).String() == "Namespace" {
			labels[key] = value
		}
	}
	if len(labels) > 0 {
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

const (
	// tokenVolumePrefix is the name prefix of the token volume that the API server adds to each Pod.
	tokenVolumePrefix = "kube-api-access-"
	// tokenMountPath is the mount path of the token volume.
	tokenMountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// cleanNamespace removes spec.finalizers. The API server adds "kubernetes" again, and the other
// entries belong to controllers in the original cluster.
func cleanNamespace(object map[string]any) { delete(object, "spec") }

// cleanSecret removes the token of a ServiceAccount, because it is invalid in another cluster. That
// cluster generates a new token.
func cleanSecret(object map[string]any) {
	if object["type"] == "kubernetes.io/service-account-token" {
		delete(object, "data")
	}
}

// cleanClaim removes the volume of a PersistentVolumeClaim unless the user has set it.
func cleanClaim(object map[string]any) {
	if mapAt(object, "metadata", "annotations")["pv.kubernetes.io/bound-by-controller"] == "yes" {
		removeFields(mapAt(object, "spec"), "volumeName")
	}
}

// cleanService removes the addresses and the health check port that the cluster has allocated. It
// keeps node ports, because clients outside the cluster use them.
func cleanService(object map[string]any) {
	spec := mapAt(object, "spec")
	if spec["clusterIP"] != "None" {
		removeFields(spec, "clusterIP", "clusterIPs")
	}
	removeFields(spec, "healthCheckNodePort")
	if spec["ipFamilyPolicy"] == "SingleStack" {
		// SingleStack is the default. The target cluster might use the other IP family.
		removeFields(spec, "ipFamilies", "ipFamilyPolicy")
	}
}

// cleanPod removes fields that the scheduler and admission plugins set. It also removes ephemeral
// containers, because a Pod cannot be created with them.
func cleanPod(object map[string]any) {
	spec := mapAt(object, "spec")
	removeFields(spec, "nodeName", "serviceAccount", "priority", "preemptionPolicy", "overhead",
		"ephemeralContainers")
	removed := map[string]bool{}
	filterList(spec, "volumes", func(volume map[string]any) bool {
		name, _ := volume["name"].(string)
		if strings.HasPrefix(name, tokenVolumePrefix) && volume["projected"] != nil {
			removed[name] = true
			return false
		}
		return true
	})
	for _, field := range []string{"containers", "initContainers"} {
		containers, _ := spec[field].([]any)
		for _, one := range containers {
			container, _ := one.(map[string]any)
			filterList(container, "volumeMounts", func(mount map[string]any) bool {
				name, _ := mount["name"].(string)
				return !removed[name] || mount["mountPath"] != tokenMountPath
			})
		}
	}
}

// jobLabels are the labels that the API server adds to the Pods of a Job.
var jobLabels = []string{
	"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name",
}

// cleanJob removes the selector and the labels that the API server has generated.
func cleanJob(object map[string]any) {
	spec := mapAt(object, "spec")
	if spec["manualSelector"] == true {
		return
	}
	removeFields(spec, "selector", "manualSelector")
	for _, metadata := range []map[string]any{
		mapAt(object, "metadata"), mapAt(spec, "template", "metadata"),
	} {
		labels := mapAt(metadata, "labels")
		removeFields(labels, jobLabels...)
		if len(labels) == 0 {
			delete(metadata, "labels")
		}
	}
}

// filterList removes the elements that do not match from a list. If no elements match, it removes
// the list.
func filterList(object map[string]any, field string, matches func(element map[string]any) bool) {
	list, _ := object[field].([]any)
	kept := slices.DeleteFunc(list, func(element any) bool {
		fields, ok := element.(map[string]any)
		return ok && !matches(fields)
	})
	if len(kept) > 0 {
		object[field] = kept
	} else {
		delete(object, field)
	}
}

// order is the order in which objects are created. Objects that other objects refer to and objects
// that apply to other objects come first. The elements have the format of schema.GroupKind.String.
var order = []string{
	"Namespace",
	// LimitRanges and NetworkPolicies come before the Pods to which they apply.
	"LimitRange",
	"NetworkPolicy.networking.k8s.io",
	"ServiceAccount",
	"Role.rbac.authorization.k8s.io",
	"RoleBinding.rbac.authorization.k8s.io",
	"ConfigMap",
	"Secret",
	"PersistentVolumeClaim",
	"Service",
	"Endpoints",
	"EndpointSlice.discovery.k8s.io",
	"PodDisruptionBudget.policy",
	// Controlled objects come before their controllers, which adopt them instead of creating new ones.
	"ControllerRevision.apps",
	"Pod",
	"ReplicaSet.apps",
	"ReplicationController",
	"Job.batch",
	"Deployment.apps",
	"StatefulSet.apps",
	"DaemonSet.apps",
	"CronJob.batch",
	"HorizontalPodAutoscaler.autoscaling",
	"Ingress.networking.k8s.io",
}

// Ranks of kinds that are not in the order.
var (
	rankBuiltIn = len(order)
	rankCustom  = len(order) + 1
	// A ResourceQuota rejects new objects until its controller has counted the existing ones.
	rankQuota = len(order) + 2
)

func rankOf(kind schema.GroupKind) int {
	if rank := slices.Index(order, kind.String()); rank >= 0 {
		return rank
	}
	switch {
	case kind.String() == "ResourceQuota":
		return rankQuota
	case !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io"):
		return rankBuiltIn
	}
	return rankCustom
}

// sortObjects sorts objects in the order in which they can be created.
func sortObjects(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		kindA, kindB := groupKind(a), groupKind(b)
		return cmp.Or(
			cmp.Compare(rankOf(kindA), rankOf(kindB)),
			cmp.Compare(kindA.Group, kindB.Group),
			cmp.Compare(kindA.Kind, kindB.Kind),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
}

func groupKind(object *unstructured.Unstructured) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}

// Write writes objects as a stream of YAML documents.
func Write(w io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		document, err := json.Marshal(object.Object)
		if err == nil {
			document, err = YAML(document)
		}
		if err != nil {
			return fmt.Errorf("failed to encode %s %s/%s: %w",
				object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s", document); err != nil {
			return fmt.Errorf("failed to write the backup: %w", err)
		}
	}
	return nil
}

// YAML converts a JSON document to YAML if it contains only printable characters. A document with
// other characters stays JSON, which is valid YAML and can escape them. The YAML library cannot
// write some of these characters, some are line breaks in YAML, and some control terminals and
// editors.
func YAML(document []byte) ([]byte, error) {
	if !isUnsafe(string(document)) {
		return yaml.JSONToYAML(document)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(document), "", "  "); err != nil {
		return nil, err
	}
	return []byte(longKey.ReplaceAllString(printable.YAML(indented.String()), "$1? $2") + "\n"), nil
}

// longKey matches all keys with more than 1024 characters, and some shorter ones. YAML requires a
// question mark before keys with more than 1024 characters.
var longKey = regexp.MustCompile(`(?m)^( *)("(?:[^"\\]|\\.){100,}":)`)

// isUnsafe reports whether a document must stay JSON. Escaped line separators, escaped paragraph
// separators and the key <<, which merges maps in YAML, are also unsafe.
func isUnsafe(text string) bool {
	return !printable.IsDocument(text) || strings.Contains(text, `\u2028`) ||
		strings.Contains(text, `\u2029`) || strings.Contains(text, `"\u003c\u003c":`)
}
