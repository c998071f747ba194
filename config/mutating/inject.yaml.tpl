# Adds the list of pending initializers to every new namespace, in the request that creates it, and the
# default parameters, labels and annotations of the NamespaceTemplates that select the namespace. The list and the templates
# come from NamespaceInitializerSet/effective, which the operator writes. The operator does not need to
# be running.
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: nslifecycle-inject
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: inject
spec:
  # A restarted API server rejects new namespaces until it has read the parameters, instead of creating them without
  # the pending list. The same applies for up to 30 s after the installation, until an API server recognizes the new
  # parameter kind. Therefore, the operator creates the binding (config/mutating/binding), without which the policy has
  # no effect, after a minute. If it applies the policy itself, it creates the binding at once, and the policy has
  # Ignore in the first minute.
  failurePolicy: Fail
  # Later admission plugins must not change the injected state. The guard policy checks the result.
  reinvocationPolicy: Never
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE"]
      resources: ["namespaces"]
      scope: "*"
  # Without match conditions, a mutation that changes nothing would cost as much as any other.
  matchConditions:
  - name: something-to-do
    expression: >-
      (params.?initializers.orValue([]).size() + params.?templates.orValue([]).size() > 0 &&
       !({{include "isExempt"}})) ||
      {{include "hasReservedKeys"}}
  variables:
  - name: labels
    expression: "object.metadata.?labels.orValue({})"
  - name: isExempt
    expression: >-
      {{include "isExempt"}}
  # With generateName, the name is unknown here. The API server then sets the label kubernetes.io/metadata.name later, and
  # replaces a value in the request, so selectors must not use that value: users could evade an initializer with it.
  - name: isUnnamed
    expression: "object.metadata.?name.orValue('') == ''"
  # The templates that the label in this request names, or whose selectors match the labels.
  # internal/initialization/selector.go implements the same rules, here and for the initializers. A set
  # that the CRD would reject must not cause an error here: while failurePolicy is Ignore, an error would
  # admit a namespace without the pending list.
  - name: templates
    expression: >-
      params.?templates.orValue([]).filter(t,
        variables.labels[?'nslifecycle.dev/template'].orValue('') == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.labels" "isUnnamed" "variables.isUnnamed"}})
  # The parameters with a default that the request does not set. A later patch of the same annotation
  # replaces an earlier one, so the templates are reversed: the default of the first one is used.
  - name: defaults
    expression: >-
      variables.isExempt ? [] :
      variables.templates.reverse().map(t, t.?parameters.orValue([]).filter(p, has(p.default) && !has(p.labelKey) &&
        !(('parameter.nslifecycle.dev/' + p.name) in object.metadata.?annotations.orValue({})))).flatten()
  # The initializers whose selectors match the labels in this request. The initializer of the templates
  # is one of them only if a template is selected.
  - name: selected
    expression: >-
      params.?initializers.orValue([]).filter(i,
        (i.name != 'templates.nslifecycle.dev' || variables.templates.size() > 0) && {{include "selects" "selector" "i.namespaceSelector" "labels" "variables.labels" "isUnnamed" "variables.isUnnamed"}})
  - name: pending
    expression: "variables.selected.map(i, i.name).join(',')"
  # Only these templates are applied before the initialization is complete: the templates policy has checked that
  # the requester may use them.
  - name: selectedTemplates
    expression: >-
      variables.selected.exists(i, i.name == 'templates.nslifecycle.dev')
      ? variables.templates.map(t, t.name).join(',') : ''
  # The templates that the first mutation has written, reversed, and the labels and annotations that they set.
  - name: settingTemplates
    expression: >-
      [object.metadata.?annotations[?'nslifecycle.dev/selected-templates'].orValue('')].filter(s, s != '')
        .map(s, s.split(',')).map(names, params.?templates.orValue([]).reverse().filter(t, t.name in names)).flatten()
  - name: labelsToSet
    expression: >-
      variables.settingTemplates.map(t, t.?labels.orValue([])).flatten()
      .map(v, {'key': v.key, 'parts': dyn({{include "partsOfMetadata"}})})
  - name: annotationsToSet
    expression: >-
      variables.settingTemplates.map(t, t.?annotations.orValue([])).flatten()
      .map(v, {'key': v.key, 'parts': dyn({{include "partsOfMetadata"}})})
  # The initializers' namespace finalizers that are not in the request.
  - name: finalizers
    expression: >-
      variables.selected.map(i, has(i.namespaceFinalizer), i.namespaceFinalizer).distinct()
        .filter(t, !(t in object.?spec.?finalizers.orValue([])))
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      # Removes all keys under nslifecycle.dev/ that the request contains, so that users cannot
      # choose initializers or forge the requester. Users can set deletion protection and choose a
      # template. Each operation has a cost, so the number of operations is kept low.
      expression: >-
        object.metadata.?labels.orValue({}).filter(k, {{include "isReservedLabel"}}).map(k,
          JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey(k)}) +
        object.metadata.?annotations.orValue({}).filter(k, k.startsWith('nslifecycle.dev/')).map(k,
          JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey(k)}) +
        (variables.defaults.size() == 0 || has(object.metadata.annotations) ? [] :
         [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]) +
        variables.defaults.map(p, JSONPatch{op: 'add',
          path: '/metadata/annotations/parameter.nslifecycle.dev~1' + p.name, value: string(p.default)}) +
        (variables.pending == '' || variables.isExempt ? [] :
         [has(object.metadata.labels)
          ? JSONPatch{op: 'add', path: '/metadata/labels/nslifecycle.dev~1initializing', value: 'true'}
          : JSONPatch{op: 'add', path: '/metadata/labels', value: {'nslifecycle.dev/initializing': 'true'}}] +
         (has(object.metadata.annotations) || variables.defaults.size() > 0 ? [
          JSONPatch{op: 'add', path: '/metadata/annotations/nslifecycle.dev~1pending-initializers',
            value: variables.pending},
          JSONPatch{op: 'add', path: '/metadata/annotations/nslifecycle.dev~1initializers',
            value: variables.pending},
          JSONPatch{op: 'add', path: '/metadata/annotations/nslifecycle.dev~1requested-by',
            value: request.userInfo.username}
         ] : [
          JSONPatch{op: 'add', path: '/metadata/annotations', value: {
            'nslifecycle.dev/pending-initializers': variables.pending,
            'nslifecycle.dev/initializers': variables.pending,
            'nslifecycle.dev/requested-by': request.userInfo.username}}]) +
         (variables.selectedTemplates == '' ? [] :
          [JSONPatch{op: 'add', path: '/metadata/annotations/nslifecycle.dev~1selected-templates',
            value: variables.selectedTemplates}]) +
         (variables.finalizers.size() == 0 ? [] : [has(object.spec)
          ? JSONPatch{op: 'add', path: '/spec/finalizers',
              value: object.spec.?finalizers.orValue([]) + variables.finalizers}
          : JSONPatch{op: 'add', path: '/spec', value: {'finalizers': variables.finalizers}}]))
  # The labels and annotations that the selected templates set, in the reverse order of the templates, as above. The
  # object is that after the first mutation, so it has the defaults of parameters. If a part of a value is empty, the key
  # is removed. internal/templateset implements the same rules.
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        variables.labelsToSet.filter(v, '' in v.parts && v.key in variables.labels).map(v, v.key).distinct()
        .map(k, JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey(k)}) +
        variables.labelsToSet.filter(v, !('' in v.parts)).map(v, JSONPatch{op: 'add',
          path: '/metadata/labels/' + jsonpatch.escapeKey(v.key), value: v.parts.join('')}) +
        variables.annotationsToSet.filter(v, '' in v.parts && v.key in object.metadata.annotations).map(v, v.key).distinct()
        .map(k, JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey(k)}) +
        variables.annotationsToSet.filter(v, !('' in v.parts)).map(v, JSONPatch{op: 'add',
          path: '/metadata/annotations/' + jsonpatch.escapeKey(v.key), value: v.parts.join('')})
