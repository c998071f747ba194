// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func makeCreated(name string, uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

func TestCreatedList(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	listOf := func(server, user string) createdList {
		session := newSession(genericiooptions.NewTestIOStreamsDiscard())
		g.Expect(session.flagSet.Set("server", server)).To(Succeed())
		list, err := session.createdList(user)
		g.Expect(err).NotTo(HaveOccurred())
		return list
	}
	const server, user = "https://a.example.com", "alice"
	list := listOf(server, user)
	g.Expect(list.read()).To(BeEmpty())
	for _, uid := range []types.UID{"1", "2"} {
		g.Expect(list.add(makeCreated("shop", uid))).To(Succeed())
		g.Expect(list.add(makeCreated("test", "3"))).To(Succeed())
	}
	g.Expect(list.read()).To(Equal(map[string]types.UID{"shop": "2", "test": "3"}), "the newest is kept")
	g.Expect(listOf("https://b.example.com", user).read()).To(BeEmpty())
	g.Expect(listOf(server, "bob").read()).To(BeEmpty())
	for path, mode := range map[string]fs.FileMode{filepath.Dir(string(list)): 0o700, string(list): 0o600} {
		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(mode), path)
	}

	var group sync.WaitGroup
	errs := make([]error, maxRecorded)
	for i := range errs {
		group.Go(func() { errs[i] = list.add(makeCreated(fmt.Sprintf("ns-%d", i), "4")) })
	}
	group.Wait()
	g.Expect(errs).To(HaveEach(BeNil()))
	g.Expect(list.read()).To(And(HaveLen(maxRecorded), HaveEach(types.UID("4"))), "the oldest are omitted")

	t.Setenv("HOME", "")
	_, err := newSession(genericiooptions.NewTestIOStreamsDiscard()).createdList(user)
	g.Expect(err).To(HaveOccurred())
}
