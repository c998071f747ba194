// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"
	"strings"
)

const (
	// tokenVolumePrefix starts the name of the volume that the API server adds to each Pod.
	tokenVolumePrefix = "kube-api-access-"
	// tokenMountPath is where it is mounted.
	tokenMountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// cleanNamespace removes the tokens of spec.finalizers: the API server sets its own, and
// others belong to agents of the cluster.
func cleanNamespace(object map[string]any) {
	delete(object, "spec")
}

// cleanSecret empties a Secret with a ServiceAccount's token: the token is worth nothing
// in another cluster, which fills in its own.
func cleanSecret(object map[string]any) {
	if object["type"] == "kubernetes.io/service-account-token" {
		delete(object, "data")
	}
}

// cleanClaim frees a claim from its volume, unless it was written for that one.
func cleanClaim(object map[string]any) {
	if mapAt(object, "metadata", "annotations")["pv.kubernetes.io/bound-by-controller"] == "yes" {
		removeFields(mapAt(object, "spec"), "volumeName")
	}
}

// cleanService removes the addresses and ports that the cluster has allocated. Node ports
// stay: they are what others outside of the cluster know a Service by.
func cleanService(object map[string]any) {
	spec := mapAt(object, "spec")
	if spec["clusterIP"] != "None" {
		removeFields(spec, "clusterIP", "clusterIPs")
	}
	removeFields(spec, "healthCheckNodePort")
	if spec["ipFamilyPolicy"] == "SingleStack" {
		// The default: the other cluster may have the other family.
		removeFields(spec, "ipFamilies", "ipFamilyPolicy")
	}
}

// cleanPod removes what scheduler and admission plug-ins have added. Ephemeral containers
// cannot be created with a Pod.
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

// jobLabels are those that the API server gives to the Pods of a Job, and selects them by.
var jobLabels = []string{
	"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name",
}

// cleanJob removes the selector that the API server has made, with the labels in it.
func cleanJob(object map[string]any) {
	spec := mapAt(object, "spec")
	if spec["manualSelector"] == true {
		return
	}
	removeFields(spec, "selector", "manualSelector")
	for _, metadata := range []map[string]any{
		mapAt(object, "metadata"), mapAt(spec, "template", "metadata"),
	} {
		removeFields(mapAt(metadata, "labels"), jobLabels...)
		if len(mapAt(metadata, "labels")) == 0 {
			delete(metadata, "labels")
		}
	}
}

// filterList keeps those elements of a list that a function wants, and removes a list
// that becomes empty.
func filterList(object map[string]any, field string, isWanted func(element map[string]any) bool) {
	list, _ := object[field].([]any)
	if list == nil {
		return
	}
	kept := slices.DeleteFunc(list, func(element any) bool {
		fields, isMap := element.(map[string]any)
		return isMap && !isWanted(fields)
	})
	if len(kept) == 0 {
		delete(object, field)
		return
	}
	object[field] = kept
}
