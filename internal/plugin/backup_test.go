// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/backup"
)

func TestIncompleteBackup(t *testing.T) {
	for name, test := range map[string]struct {
		unread []string
		exists bool
		// isWritten is set if the file contains the new backup.
		isWritten bool
	}{
		"complete":                {exists: true, isWritten: true},
		"incomplete, new file":    {unread: []string{"pods"}, isWritten: true},
		"incomplete, file exists": {unread: []string{"pods"}, exists: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "shop.yaml")
			if test.exists {
				g.Expect(os.WriteFile(file, []byte("old"), 0o600)).To(Succeed())
			}
			object := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}
			options := &backupOptions{session: newSession(genericiooptions.NewTestIOStreamsDiscard()), filename: file}
			err := options.finish("shop", &backup.Backup{Objects: []*unstructured.Unstructured{object}, Unread: test.unread})
			g.Expect(err != nil).To(Equal(test.unread != nil), "%v", err)
			text, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			if test.isWritten {
				g.Expect(string(text)).To(Equal("---\nkind: ConfigMap\n"))
			} else {
				g.Expect(string(text)).To(Equal("old"))
			}
		})
	}
}
