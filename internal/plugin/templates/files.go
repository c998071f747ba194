// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Stdin is the name of the file that stands for stdin.
const Stdin = "-"

// KindTemplate is the kind of a NamespaceTemplate.
const KindTemplate = "NamespaceTemplate"

const msgDecode = "failed to decode %s in %s: %w"

// ReadTemplate reads the only NamespaceTemplate in a file. Objects of other kinds are ignored.
func ReadTemplate(file string, stdin io.Reader) (*v1alpha1.NamespaceTemplate, error) {
	content, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	document, err := findDocument(file, content, templateType)
	if err != nil {
		return nil, err
	}
	return decodeTemplate(file, document)
}

// ReadTemplates reads all NamespaceTemplates in a file that contains at least one.
func ReadTemplates(file string, stdin io.Reader) ([]*v1alpha1.NamespaceTemplate, error) {
	content, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	documents, err := findDocuments(file, content, templateType)
	if err == nil && len(documents) == 0 {
		err = fmt.Errorf("%s contains no %s of %s", file, templateType.Kind, templateType.APIVersion)
	}
	if err != nil {
		return nil, err
	}
	found := make([]*v1alpha1.NamespaceTemplate, 0, len(documents))
	for _, document := range documents {
		template, err := decodeTemplate(file, document)
		if err != nil {
			return nil, err
		}
		found = append(found, template)
	}
	return found, nil
}

var templateType = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: KindTemplate}

func decodeTemplate(file string, document []byte) (*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{}
	if err := validateSchema(document); err != nil {
		return nil, err
	}
	if err := decodeStrict(document, template); err != nil {
		return nil, fmt.Errorf(msgDecode, KindTemplate, file, err)
	}
	return template, nil
}

// ReadNamespace reads the only Namespace in a file.
func ReadNamespace(file string, stdin io.Reader) (*corev1.Namespace, error) {
	content, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	kind := metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Namespace"}
	document, err := findDocument(file, content, kind)
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{}
	if err := decodeStrict(document, namespace); err != nil {
		return nil, fmt.Errorf(msgDecode, kind.Kind, file, err)
	}
	return namespace, nil
}

// findDocument returns the only document of a type in the content of a file.
func findDocument(file string, content []byte, of metav1.TypeMeta) ([]byte, error) {
	found, err := findDocuments(file, content, of)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s must contain exactly one %s, got %d", file, of.Kind+" of "+of.APIVersion, len(found))
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// findDocuments returns the documents of a type in the content of a file.
func findDocuments(file string, content []byte, of metav1.TypeMeta) ([][]byte, error) {
	var found [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("failed to read %s: %w", file, err)
		}
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			return nil, fmt.Errorf("failed to decode %s: %w", file, err)
		}
		if is == of {
			found = append(found, document)
		}
	}
}

// decodeStrict decodes a document. The error contains all unknown and duplicate fields.
func decodeStrict(document []byte, into any) error {
	encoded, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(encoded, into)
	return errors.Join(append(strict, err)...)
}

// readFile reads a file that the user passes, which can be a symbolic link or a pipe.
func readFile(file string, stdin io.Reader) (content []byte, err error) {
	if file == Stdin {
		content, err = io.ReadAll(stdin)
	} else {
		content, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read %s: %w", file, err)
	}
	return content, nil
}
