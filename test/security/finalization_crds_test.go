// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// The API server interprets some plurals in paths: /apis/<group>/v1/namespaces/<namespace>/status is the
// status of an object with the plural namespaces. Objects with the plural status or finalize cannot be
// created.
var _ = Describe("The author of a CustomResourceDefinition", func() {
	// Registering seven types takes about 20 s.
	It("cannot direct the finalization to other objects with the plural of a type", func(ctx context.Context) {
		group := framework.Unique("plurals") + ".example.com"
		victim := createVictim(ctx)
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("plurals"))
		installCRD(ctx, "cluster."+group, "namespaces", "namespace", "Space", "sp", "Cluster")
		created := 0
		for _, plural := range []string{"namespaces", "status", "finalize", "watch", "proxy", "pods"} {
			installCRD(ctx, plural+"."+group, plural, plural+"x", "Thing", plural+"s", "Namespaced")
			for _, in := range []string{victim.Namespace, namespace.Name} {
				for _, name := range []string{victim.Namespace, victim.Name, "status"} {
					body := `{"apiVersion":"` + plural + "." + group + `/v1","kind":"Thing","metadata":{"name":"` + name + `"}}`
					_, err := send(ctx, cluster.Admin, http.MethodPost, "/apis/"+plural+"."+group+"/v1/namespaces/"+in+"/"+plural,
						jsonType, []byte(body))
					if plural == "status" || plural == "finalize" {
						Expect(err).To(HaveOccurred())
						continue
					}
					Expect(err).NotTo(HaveOccurred())
					created++
				}
			}
		}
		for _, name := range []string{victim.Namespace, namespace.Name} {
			_, err := send(ctx, cluster.Admin, http.MethodPost, "/apis/cluster."+group+"/v1/namespaces", jsonType,
				[]byte(`{"apiVersion":"cluster.`+group+`/v1","kind":"Space","metadata":{"name":"`+name+`"}}`))
			Expect(err).NotTo(HaveOccurred())
		}
		before := listEverything(ctx)
		Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		before.expectKept(ctx, namespace.Name)
		Expect(created).To(Equal(24))
		_, err := send(ctx, cluster.Admin, http.MethodGet, "/apis/pods."+group+"/v1/namespaces/"+namespace.Name+"/pods/status", jsonType, nil)
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	}, SpecTimeout(5*time.Minute))
})
