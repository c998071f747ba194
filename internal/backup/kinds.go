// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"
	"strings"
)

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
