// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("list, like kubectl get", func() {
	It("prints names, templates and custom columns, of all or of some namespaces", func(ctx context.Context) {
		one, two := makeNamespace(ctx, bareAdmin, "output"), makeNamespace(ctx, bareAdmin, "output")
		adminUser := newUser(bare.Admin.Config)
		for _, output := range []struct{ format, want string }{
			{"name", "namespace/" + one.Name + "\nnamespace/" + two.Name + "\n"},
			{"jsonpath={.items[*].metadata.name}", one.Name + " " + two.Name},
			{"go-template={{range .items}}{{.state}},{{end}}", "Initialized,Initialized,"},
			{"custom-columns=N:.metadata.name,X:.nothing", "N                 X\n" + one.Name + "   <none>\n" + two.Name + "   <none>\n"},
		} {
			listed := adminUser.run(ctx, "list", "-l", "test=output", "-o", output.format)
			Expect(listed.code).To(BeZero(), listed.stderr)
			Expect(strings.Join(strings.Fields(listed.stdout), " ")).To(
				Equal(strings.Join(strings.Fields(output.want), " ")), output.format)
		}
		Expect(adminUser.run(ctx, "list", "-o", "custom-columns=x").stderr).To(ContainSubstring("NAME:JSONPATH"))
		Expect(adminUser.run(ctx, "list", "-o", "jsonpath={").stderr).To(HavePrefix("error: "))

		By("listing named namespaces, with permission to get them")
		getter := newRestrictedUser(ctx, bare, unique("getter"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"},
		})
		listed := getter.run(ctx, "list", two.Name, "missing", "--no-headers")
		Expect(listed.code).To(Equal(1))
		Expect(rows(listed.stdout)).To(And(HaveLen(1), HaveKey(two.Name)))
		Expect(listed.stderr).To(Equal("Error from server (NotFound): namespaces \"missing\" not found\n"))
	}, NodeTimeout(testTimeout))

	It("watches", func(ctx context.Context) {
		first := makeNamespace(ctx, bareAdmin, "watched")
		watching := newUser(bare.Admin.Config).start("list", "-l", "test=watched", "--watch")
		Eventually(watching.stdout).WithContext(ctx).Should(gbytes.Say(`NAME +STATE .*\n` + first.Name + ` +Initialized `))
		second := makeNamespace(ctx, bareAdmin, "watched")
		Eventually(watching.stdout).WithContext(ctx).Should(gbytes.Say(second.Name + ` +Initialized `))
		Expect(bareAdmin.Delete(ctx, first)).To(Succeed())
		Eventually(watching.stdout).WithContext(ctx).Should(gbytes.Say(first.Name + ` +Terminating `))
		Expect(strings.Count(string(watching.stdout.Contents()), "NAME")).To(Equal(1))
		interrupt(watching)
		Expect(watching.wait(ctx).code).To(Equal(130))
		missing := newUser(bare.Admin.Config).run(ctx, "list", "missing", "--watch")
		Expect(missing.stderr).To(Equal("Error from server (NotFound): namespaces \"missing\" not found\n"))
	}, NodeTimeout(testTimeout))

	It("reads several clusters, also if one of them does not respond", func(ctx context.Context) {
		name := unique("fleet")
		for _, running := range []*framework.Cluster{plane, bare} {
			Expect(running.Admin.Create(ctx, wrappers.MakeNamespace(name).Label("test", "fleet").Obj())).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				_ = running.Admin.Delete(ctx, wrappers.MakeNamespace(name).Obj())
			})
		}
		nowhere := rest.CopyConfig(bare.Admin.Config)
		nowhere.Host = "https://127.0.0.1:1"
		fleet := newFleet(map[string]*rest.Config{"east": plane.Admin.Config, "west": bare.Admin.Config, "nowhere": nowhere})

		listed := fleet.run(ctx, "list", "-l", "test=fleet", "--contexts=east,west")
		Expect(listed.code).To(BeZero(), listed.stderr)
		Expect(listed.stdout).To(MatchRegexp(`^CONTEXT +NAME +STATE .*\neast +` + name + ` +Initialized .*\nwest +` + name + ` +Initialized .*\n$`))

		partial := fleet.run(ctx, "list", "-l", "test=fleet", "--contexts=nowhere,west", "-o", "json")
		Expect(partial.code).To(Equal(1))
		Expect(partial.stderr).To(HavePrefix(`Unable to connect to the server: context "nowhere": `))
		var list struct{ Items []struct{ Context string } }
		Expect(json.Unmarshal([]byte(partial.stdout), &list)).To(Succeed())
		Expect(list.Items).To(HaveExactElements(HaveField("Context", "west")))
		Expect(fleet.run(ctx, "list", "--contexts=west,missing").stderr).To(ContainSubstring(`context "missing" does not exist`))
		Expect(fleet.run(ctx, "list", "--contexts=west", "--context=east").code).To(Equal(1))

		explained := fleet.run(ctx, "explain", name, "--contexts=east,nowhere,west")
		Expect(explained.code).To(Equal(1))
		Expect(explained.stdout).To(MatchRegexp(`(?s)^Namespace ` + name + ` in context east: Initialized .*\nNamespace ` + name +
			` in context west: Initialized `))
		Expect(explained.stderr).To(HavePrefix(`Unable to connect to the server: context "nowhere": `))
		Expect(explained.stderr).NotTo(ContainSubstring("east"))
	}, NodeTimeout(testTimeout))
})

// newFleet returns a user whose kubeconfig has a context for each cluster.
func newFleet(clusters map[string]*rest.Config) *user {
	GinkgoHelper()
	fleet := newUser(bare.Admin.Config)
	merged := clientcmdapi.NewConfig()
	for name, config := range clusters {
		file := filepath.Join(fleet.home, name)
		Expect(controlplane.WriteKubeconfig(file, config)).To(Succeed())
		one, err := clientcmd.LoadFromFile(file)
		Expect(err).NotTo(HaveOccurred())
		current := one.Contexts[one.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	Expect(clientcmd.WriteToFile(*merged, kubeconfigOf(fleet))).To(Succeed())
	return fleet
}
