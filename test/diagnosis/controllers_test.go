// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// postToEtcd sends a request to etcd, bypassing the API server.
func postToEtcd(ctx context.Context, path string, fields map[string]string) {
	GinkgoHelper()
	encoded := map[string]string{}
	for name, value := range fields {
		encoded[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	body, err := json.Marshal(encoded)
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cluster.EtcdURL()+path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusOK))
}

var _ = Describe("The namespace controller", func() {
	It("is reported if it cannot read a corrupt object from storage", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		key := f.text("/registry/$id.example.com/widgets/$ns/damaged")
		postToEtcd(ctx, "/v3/kv/put", map[string]string{"key": key, "value": "not an object"})
		DeferCleanup(func(ctx context.Context) { postToEtcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key}) })
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseStorageUnreadable).withMessage("widgets.$id.example.com"))
		postToEtcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key})
		f.expectTerminating(ctx, heldWidget)
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	})
})
