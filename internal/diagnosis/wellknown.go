// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
	"strings"
)

// Who runs the controllers of Kubernetes itself.
const (
	controllerManager = "kube-controller-manager"
	cloudManager      = "cloud-controller-manager"
)

// Finalizers that Kubernetes itself puts on objects.
const (
	finalizerForeground   = "foregroundDeletion"
	finalizerOrphan       = "orphan"
	finalizerClaim        = "kubernetes.io/pvc-protection"
	finalizerJob          = "batch.kubernetes.io/job-tracking"
	finalizerLoadBalancer = "service.kubernetes.io/load-balancer-cleanup"
	finalizerDefinition   = "customresourcecleanup.apiextensions.k8s.io"
)

// wellKnown is what is known of a finalizer whose owner is common.
type wellKnown struct {
	// owner is who takes it off; manager is the name of the process and its Lease if it is
	// part of Kubernetes itself.
	owner, manager string
	// words find its workload where it is an add-on.
	words []string
	// isCloud says that it stands for something outside of the cluster.
	isCloud bool
	// loss is what is left behind if it is taken off by force.
	loss string
}

const (
	awsLoadBalancers     = "aws-load-balancer-controller"
	awsLoadBalancerOwner = "the AWS Load Balancer Controller"

	lossVolume = "a volume may be detached or deleted while it is still in use; data may be lost"
	lossCloud  = "the load balancer and what belongs to it stay with the cloud provider, and are charged for"
	lossCSI    = "the volume may stay with the storage system, or stay attached to a node"
	lossSnap   = "the snapshot may stay with the storage system"
)

var wellKnownFinalizers = map[string]wellKnown{
	finalizerForeground: {
		owner: "the garbage collector of " + controllerManager, manager: controllerManager,
		loss: "dependents that are still there are deleted later, by the garbage collector, or not at all",
	},
	finalizerOrphan: {
		owner: "the garbage collector of " + controllerManager, manager: controllerManager,
		loss: "dependents keep a reference to an owner that is gone, and are garbage-collected",
	},
	finalizerClaim: {
		owner: "the pvc-protection controller of " + controllerManager, manager: controllerManager, loss: lossVolume,
	},
	finalizerJob: {
		owner: "the job controller of " + controllerManager, manager: controllerManager,
		loss: "the Job may count this Pod wrongly; in a namespace that is being deleted nothing is lost",
	},
	finalizerLoadBalancer: {
		owner: "the service controller of " + cloudManager, manager: cloudManager, isCloud: true, loss: lossCloud,
		words: []string{"cloud-controller-manager", "ccm", "metallb", "kube-vip", "cloud-provider"},
	},
	"resource.kubernetes.io/delete-protection": {
		owner: "the resource claim controller of " + controllerManager, manager: controllerManager,
		loss: "a device may be given to somebody else while it is still in use",
	},
	"external-provisioner.volume.kubernetes.io/finalizer": {
		owner: "the external-provisioner of the storage driver", words: []string{"csi", "provisioner"}, loss: lossCSI,
	},
	"service.k8s.aws/resources": {
		owner: awsLoadBalancerOwner, words: []string{awsLoadBalancers},
		isCloud: true, loss: lossCloud,
	},
	"ingress.k8s.aws/resources": {
		owner: awsLoadBalancerOwner, words: []string{awsLoadBalancers},
		isCloud: true, loss: lossCloud,
	},
	"elbv2.k8s.aws/resources": {
		owner: awsLoadBalancerOwner, words: []string{awsLoadBalancers},
		isCloud: true, loss: lossCloud,
	},
	"networking.gke.io/l4-netlb-v2": {
		owner: "the GKE ingress controller, which runs outside of the cluster", isCloud: true, loss: lossCloud,
	},
	"networking.gke.io/neg-finalizer": {
		owner: "the GKE ingress controller, which runs outside of the cluster", isCloud: true, loss: lossCloud,
	},
	"networking.gke.io/ingress-finalizer-V2": {
		owner: "the GKE ingress controller, which runs outside of the cluster", isCloud: true, loss: lossCloud,
	},
}

// wellKnownPrefixes are those of finalizers that come in several forms.
var wellKnownPrefixes = map[string]wellKnown{
	"snapshot.storage.kubernetes.io/": {
		owner: "the snapshot controller", words: []string{"snapshot-controller", "csi-snapshotter", "snapshotter"},
		loss: lossSnap,
	},
	"external-attacher/": {
		owner: "the external-attacher of the storage driver", words: []string{"csi", "attacher"}, loss: lossCSI,
	},
	"group.ingress.k8s.aws/": {
		owner: awsLoadBalancerOwner, words: []string{awsLoadBalancers},
		isCloud: true, loss: lossCloud,
	},
}

// cloudDomains are those of clouds that run controllers outside of the clusters that they
// offer, of which nothing is seen in these.
var cloudDomains = []string{
	"amazonaws.com", "k8s.aws", "gke.io", "cloud.google.com", "azure.com", "microsoft.com", "alibabacloud.com",
	"digitalocean.com", "ibm.com", "oraclecloud.com",
}

// isOfCloud tells whether a domain is that of such a cloud.
func isOfCloud(domain string) bool {
	return slices.ContainsFunc(cloudDomains, func(cloud string) bool {
		return domain == cloud || strings.HasSuffix(domain, "."+cloud)
	})
}

// lookUp returns what is known of a finalizer.
func lookUp(finalizer string) (wellKnown, bool) {
	if known, isKnown := wellKnownFinalizers[finalizer]; isKnown {
		return known, true
	}
	for prefix, known := range wellKnownPrefixes {
		if strings.HasPrefix(finalizer, prefix) {
			return known, true
		}
	}
	return wellKnown{}, false
}
