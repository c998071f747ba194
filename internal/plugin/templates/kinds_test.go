// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestBuiltInResource(t *testing.T) {
	g := NewWithT(t)
	for group, kinds := range namespacedKinds {
		for kind := range strings.FieldsSeq(kinds) {
			g.Expect(scheme.Scheme.VersionsForGroupKind(schema.GroupKind{Group: group, Kind: kind})).NotTo(BeEmpty(), kind)
		}
	}
	for kind, want := range map[schema.GroupVersionKind]string{
		{Version: "v1", Kind: "ResourceQuota"}:                                   "resourcequotas",
		{Version: "v1", Kind: "Endpoints"}:                                       "endpoints",
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}:       "networkpolicies",
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:             "ingresses",
		{Version: "v1", Kind: "Namespace"}:                                       "",
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}: "",
		{Group: "cilium.io", Version: "v2", Kind: "NetworkPolicy"}:               "",
	} {
		resource, ok := BuiltInResource(kind)
		g.Expect(ok).To(Equal(want != ""), kind.String())
		g.Expect(resource.Resource).To(Equal(want))
		if ok {
			g.Expect(resource.GroupVersion()).To(Equal(kind.GroupVersion()))
		}
	}
}
