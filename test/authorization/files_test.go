// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// TestTalos verifies that the authorizer for Talos, which writes the configuration itself, is the one in
// authorization.yaml, and that it is the last of them.
func TestTalos(t *testing.T) {
	g := NewWithT(t)
	configuration := &apiserverv1.AuthorizationConfiguration{}
	decode(g, "authorization.yaml", configuration)
	var talos struct {
		Machine map[string]any `json:"machine"`
		Cluster struct {
			APIServer struct {
				ExtraVolumes        []any                                 `json:"extraVolumes"`
				AuthorizationConfig []apiserverv1.AuthorizerConfiguration `json:"authorizationConfig"`
			} `json:"apiServer"`
		} `json:"cluster"`
	}
	decode(g, "talos.yaml", &talos)
	g.Expect(configuration.Authorizers).To(HaveLen(3))
	g.Expect(talos.Cluster.APIServer.AuthorizationConfig).To(Equal(configuration.Authorizers[2:]))
}

func decode(g Gomega, file string, into any) {
	data, err := os.ReadFile(filepath.Join(controlplane.Root(), "config", "authorization", file))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.UnmarshalStrict(data, into)).To(Succeed())
}
