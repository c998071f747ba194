// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("The name of a namespace", func() {
	// 19 namespaces with 6 requests each.
	It("does not let an ordinary user write to it during the initialization", func(ctx context.Context) {
		cluster.Register(ctx, "names", "absent.test.example.com")
		for _, name := range reservedNames {
			namespace := framework.CreateNamespace(ctx, cluster.Ordinary, name)
			Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
			for _, one := range []write{
				{http.MethodPost, "/api/v1/namespaces/%NAME%/configmaps", jsonType, configMapA},
				{http.MethodPost, "/api/v1/namespaces/%NAME%/configmaps?dryRun=All", jsonType, configMapA},
				{http.MethodPost, "/api/v1/namespaces/%NAME%/serviceaccounts", jsonType,
					`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"generateName":"a-"}}`},
				{http.MethodPatch, "/api/v1/namespaces/%NAME%/configmaps/%NAME%?fieldManager=x", applyYAMLType,
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%NAME%"}}`},
				{http.MethodPatch, "/apis/apps/v1/namespaces/%NAME%/deployments/status?fieldManager=x", applyYAMLType,
					`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"status"},"spec":{"selector":{"matchLabels":` +
						`{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
			} {
				_, err := send(ctx, cluster.Ordinary, one.method, fill(one.path, namespace), one.contentType, []byte(fill(one.body, namespace)))
				Expect(err).To(BeForbiddenBy("gate"), "%s %s", one.method, fill(one.path, namespace))
			}
			_, err := send(ctx, cluster.Ordinary, http.MethodPatch, pathOf(namespace, "status"), mergeType,
				[]byte(`{"metadata":{"annotations":{"`+pendingKey+`":""}}}`))
			Expect(err).To(BeForbiddenBy("guard"))
			expectUnchanged(ctx, namespace)
			Expect(cluster.Ordinary.Delete(ctx, namespace)).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}
	}, SpecTimeout(5*time.Minute))
})
